#include "core/pace.h"

#include <gtest/gtest.h>

namespace hccl_like {
namespace {

using std::chrono::nanoseconds;
constexpr size_t kSize = 1 << 20;

// As a caller does: `copies` copies of which each way takes so long.
uint32_t by_kernel(Pace& pace, uint32_t copies, int kernel, int shared) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < copies; ++i) {
    const CopyWay way = pace.choose(kSize);
    count += way == CopyWay::kKernel;
    pace.learn(kSize, way, nanoseconds(way == CopyWay::kKernel ? kernel : shared));
  }
  return count;
}

// The slower way: two at first, two each from the 8th, 16th, 32nd and 64th on.
TEST(Pace, TakesTheFasterWayAfterATrialOfBoth) {
  Pace kernel, shared;
  EXPECT_EQ(by_kernel(kernel, 100, 10'000, 20'000), 90u);
  EXPECT_EQ(by_kernel(shared, 100, 20'000, 10'000), 10u);
}

TEST(Pace, TriesTheSlowerWayAgainAndChangesItsMind) {
  Pace pace;
  by_kernel(pace, 128, 10'000, 20'000);
  EXPECT_EQ(by_kernel(pace, 2, 10'000, 20'000), 0u) << "both of the retry";
  EXPECT_EQ(by_kernel(pace, 126, 10'000, 20'000), 126u);
  // The kernel's copies have become slow: what they once took is forgotten.
  by_kernel(pace, 128, 40'000, 20'000);
  EXPECT_EQ(by_kernel(pace, 128, 40'000, 20'000), 2u);
}

TEST(Pace, FirstCopiesThatTouchNewMemoryDoNotDecide) {
  Pace pace;
  by_kernel(pace, 4, 20'000, 50'000);
  EXPECT_EQ(by_kernel(pace, 4, 20'000, 10'000), 4u) << "it has not tried again yet";
  EXPECT_EQ(by_kernel(pace, 8, 20'000, 10'000), 1u) << "once more, as it is the slower one now";
}

TEST(Pace, OneSlowCopyChangesNothing) {
  Pace pace;
  by_kernel(pace, 100, 10'000, 20'000);
  pace.learn(kSize, CopyWay::kKernel, nanoseconds(1'000'000'000));
  EXPECT_EQ(pace.choose(kSize), CopyWay::kKernel);
}

TEST(Pace, LearnsEachSizeApartAndLeavesShortCopiesAlone) {
  Pace pace;
  by_kernel(pace, 20, 10'000, 20'000);
  EXPECT_EQ(pace.choose(kSize), CopyWay::kKernel);
  for (int i = 0; i < 3; ++i) {
    pace.learn(16 * kSize, CopyWay::kKernel, nanoseconds(2'000'000));
    pace.learn(16 * kSize, CopyWay::kShared, nanoseconds(1'000'000));
  }
  EXPECT_EQ(pace.choose(16 * kSize), CopyWay::kShared);
  EXPECT_EQ(pace.choose(Pace::kLeast - 1), CopyWay::kShared);
}

}  // namespace
}  // namespace hccl_like
