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

TEST(LineTime, IsConfirmedByThreeLooksThatFollowed) {
  LineTime time;
  const auto look = [&](int took, int times) {
    for (int i = 0; i < times; ++i) time.add(std::chrono::nanoseconds(took));
  };
  look(50, 10);
  const uint32_t before = time.looks();
  EXPECT_EQ(before, 10u);
  look(50, 2);
  EXPECT_FALSE(time.is_confirmed_since(before)) << "two";
  look(50, 1);
  EXPECT_TRUE(time.is_confirmed_since(before));
  look(150, 1);
  EXPECT_FALSE(time.is_confirmed_since(before)) << "the last one does not agree";
  look(150, 6);
  EXPECT_EQ(time.distance(), 4u);
  EXPECT_TRUE(time.is_confirmed_since(before)) << "of the distance that it is now";
}

}  // namespace
}  // namespace hccl_like
