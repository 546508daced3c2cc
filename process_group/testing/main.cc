// Entry of the tests, which Python calls: it loads torch with its libraries.
#include <gtest/gtest.h>

#include <cstdlib>

// Returns the exit code.
extern "C" __attribute__((visibility("default"))) int hccl_like_process_group_tests(
    int count, char** arguments) {
  ::setenv("HCCL_LIKE_SLICE_BYTES", "65536", 1);  // slices of 128 KiB between device and host
  ::setenv("HCCL_LIKE_FLIGHT_DUMP", "0", 1);
  ::testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
