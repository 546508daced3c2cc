#include "core/pace.h"

#include <gtest/gtest.h>

namespace hccl_like {
namespace {

using std::chrono::nanoseconds;
constexpr size_t kSize = 1 << 20;

// As a caller does: `copies` copies of which each way takes so long.
uint32_t by_kernel(Pace& pace, uint32_t from, uint32_t copies, int kernel, int shared) {
  uint32_t count = 0;
  for (uint32_t number = from; number < from + copies; ++number) {
    const CopyWay way = pace.choose(kSize, number);
    count += way == CopyWay::kKernel;
    pace.learn(kSize, way, nanoseconds(way == CopyWay::kKernel ? kernel : shared));
  }
  return count;
}

TEST(Pace, TakesTheFasterWayAfterATrialOfBoth) {
  Pace kernel, shared;
  EXPECT_EQ(by_kernel(kernel, 1, 100, 10'000, 20'000), 98u);
  EXPECT_EQ(by_kernel(shared, 1, 100, 20'000, 10'000), 2u);
}

TEST(Pace, TriesTheSlowerWayAgainAndChangesItsMind) {
  Pace pace;
  by_kernel(pace, 1, 100, 10'000, 20'000);
  EXPECT_EQ(by_kernel(pace, 128, 1, 10'000, 20'000), 0u);
  // The kernel's copies have become slow: what they once took is forgotten.
  by_kernel(pace, 129, 100, 40'000, 20'000);
  EXPECT_EQ(by_kernel(pace, 300, 50, 40'000, 20'000), 0u);
}

TEST(Pace, OneSlowCopyChangesNothing) {
  Pace pace;
  by_kernel(pace, 1, 100, 10'000, 20'000);
  pace.learn(kSize, CopyWay::kKernel, nanoseconds(1'000'000'000));
  EXPECT_EQ(pace.choose(kSize, 1), CopyWay::kKernel);
}

TEST(Pace, LearnsEachSizeApartAndLeavesShortCopiesAlone) {
  Pace pace;
  by_kernel(pace, 1, 20, 10'000, 20'000);
  EXPECT_EQ(pace.choose(kSize, 1), CopyWay::kKernel);
  for (int i = 0; i < 3; ++i) {
    pace.learn(16 * kSize, CopyWay::kKernel, nanoseconds(2'000'000));
    pace.learn(16 * kSize, CopyWay::kShared, nanoseconds(1'000'000));
  }
  EXPECT_EQ(pace.choose(16 * kSize, 1), CopyWay::kShared);
  EXPECT_EQ(pace.choose(Pace::kLeast - 1, 1), CopyWay::kShared);
}

}  // namespace
}  // namespace hccl_like
