#include "core/line_time.h"

#include <gtest/gtest.h>

namespace hccl_like {
namespace {

using std::chrono::nanoseconds;

void add(LineTime& time, std::initializer_list<int> looks) {
  for (const int look : looks) time.add(nanoseconds(look));
}

TEST(LineTime, IsKnownAfterFiveLooks) {
  LineTime time;
  add(time, {50, 50, 50, 50});
  EXPECT_EQ(time.distance(), 0u);
  add(time, {50});
  EXPECT_EQ(time.distance(), 2u);
}

TEST(LineTime, FollowsTheMedian) {
  LineTime time;
  add(time, {30, 160, 150, 4'000'000, 170});
  EXPECT_EQ(time.distance(), 4u);
  add(time, {60, 50, 51, 9'000, 250});
  EXPECT_EQ(time.distance(), 2u);
}

TEST(LineTime, GrowsByOneWithEachDoubling) {
  const auto distance = [](int look) {
    LineTime time;
    for (int i = 0; i < 5; ++i) time.add(nanoseconds(look));
    return time.distance();
  };
  EXPECT_EQ(distance(0), 1u);
  EXPECT_EQ(distance(31), 1u);
  EXPECT_EQ(distance(32), 2u);
  EXPECT_EQ(distance(63), 2u);
  EXPECT_EQ(distance(64), 3u);
  EXPECT_EQ(distance(512), 6u);
  EXPECT_EQ(distance(1'000'000'000), LineTime::kDistances - 1);
}

TEST(LineTime, AMoveShowsAfterSoManyLooks) {
  for (uint32_t before = 5; before < 20; ++before) {
    LineTime time;
    for (uint32_t i = 0; i < before; ++i) time.add(std::chrono::nanoseconds(50));
    EXPECT_EQ(time.looks(), before);
    for (uint32_t i = 0; i < LineTime::kShows; ++i) time.add(std::chrono::nanoseconds(150));
    EXPECT_EQ(time.distance(), 4u) << before;
  }
}

}  // namespace
}  // namespace hccl_like
