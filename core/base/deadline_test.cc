#include "core/base/deadline.h"

#include <gtest/gtest.h>

namespace hccl_like {
namespace {

using std::chrono::milliseconds;

TEST(Deadline, NeverDoesNotExpire) {
  EXPECT_FALSE(Deadline::never().expired());
  EXPECT_EQ(Deadline::never().remaining(), -1);
  EXPECT_EQ(Deadline::after(milliseconds::max()), Deadline::never());
}

TEST(Deadline, APastOneHasNothingLeft) {
  EXPECT_TRUE(Deadline::after(milliseconds(0)).expired());
  EXPECT_EQ(Deadline::after(milliseconds(0)).remaining(), 0);
  EXPECT_TRUE(Deadline::after(milliseconds(-5)).expired());
  EXPECT_EQ(Deadline::after(milliseconds(-5)).remaining(), 0);
}

TEST(Deadline, RoundsTheRestUp) {
  const Deadline soon =
      Deadline::at(Deadline::Clock::now() + std::chrono::microseconds(59'999'100));
  EXPECT_FALSE(soon.expired());
  EXPECT_LE(soon.remaining(), 60'000);
  EXPECT_GT(soon.remaining(), 50'000);
  EXPECT_EQ(Deadline::after(std::chrono::hours(24 * 365)).remaining(),
            std::numeric_limits<int>::max());
}

TEST(Deadline, TheEarlierOfTwoWins) {
  const Deadline a = Deadline::after(milliseconds(1000)), b = Deadline::after(milliseconds(2000));
  EXPECT_EQ(earliest(a, b), a);
  EXPECT_EQ(earliest(Deadline::never(), b), b);
  EXPECT_EQ(b.time_point() - a.time_point() > milliseconds(900), true);
}

}  // namespace
}  // namespace hccl_like
