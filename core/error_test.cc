#include "core/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <sstream>

namespace hccl_like {
namespace {

TEST(Error, PrintsItsCodeAndPeer) {
  EXPECT_EQ(to_string(Error{ErrorCode::kTimeout, "nobody came", -1}), "timeout: nobody came");
  std::ostringstream out;
  out << Error{ErrorCode::kPeerLost, "the connection was closed", 3};
  EXPECT_EQ(out.str(), "peer lost (rank 3): the connection was closed");
}

TEST(Error, HasANameForEveryCode) {
  EXPECT_EQ(name(ErrorCode::kMisuse), "misuse");
  EXPECT_EQ(name(ErrorCode::kPeerLost), "peer lost");
  EXPECT_EQ(name(ErrorCode::kAborted), "aborted");
  EXPECT_EQ(name(ErrorCode::kMismatch), "mismatch");
  EXPECT_EQ(name(ErrorCode::kSystem), "system");
  EXPECT_EQ(name(ErrorCode::kDevice), "device");
  EXPECT_EQ(name(ErrorCode::kUnsupported), "unsupported");
}

TEST(Error, ThrowSystemAppendsErrno) {
  errno = ECONNREFUSED;
  try {
    throw_system("cannot connect to 10.0.0.1:4000");
  } catch (const Exception& e) {
    EXPECT_EQ(e.code(), ErrorCode::kSystem);
    EXPECT_STREQ(e.what(),
                 "system: cannot connect to 10.0.0.1:4000: Connection refused (errno 111)");
    return;
  }
}

TEST(Error, AMisuseIsToldWithoutPrefix) {
  try {
    throw_misuse("pass a tensor of 4 elements");
  } catch (const Exception& e) {
    EXPECT_STREQ(e.what(), "pass a tensor of 4 elements");
    EXPECT_EQ(e.error(), (Error{ErrorCode::kMisuse, "pass a tensor of 4 elements", -1}));
    return;
  }
}

}  // namespace
}  // namespace hccl_like
