#include "core/machine/background_thread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "core/base/deadline.h"

namespace hccl_like {
namespace {

// Work is a number that the thread counts down.
class BackgroundThreadTest : public testing::Test {
 protected:
  void add(int work, bool large) {
    work_ += work;
    thread_.wake(large);
  }
  bool done_in_time() {
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    while (work_ > 0 && !deadline.expired()) std::this_thread::yield();
    return work_ == 0;
  }

  std::atomic<int> work_{0}, drives_{0};
  std::atomic<std::thread::id> who_{};
  BackgroundThread thread_{[this] { return work_ > 0; },
                           [this] {
                             who_ = std::this_thread::get_id();
                             ++drives_;
                             while (work_ > 0) --work_;
                           }};
};

TEST_F(BackgroundThreadTest, DoesLargeAndSmallWorkOnOneThreadOfItsOwn) {
  std::thread::id first;
  for (int i = 0; i < 50; ++i) {
    add(1 + i % 3, /*large=*/i % 2 == 0);
    ASSERT_TRUE(done_in_time()) << i;
    if (i == 0) first = who_;
    EXPECT_EQ(who_.load(), first);
    EXPECT_NE(who_.load(), std::this_thread::get_id());
  }
  thread_.stop();
}

TEST_F(BackgroundThreadTest, SmallWorkThatEndsByItselfNeedsNoDrive) {
  add(1, /*large=*/false);  // the first work starts the thread
  ASSERT_TRUE(done_in_time());
  // A wake-up before the thread dozes drives it once more, so the best of several rounds counts.
  int fewest = 100;
  for (int round = 0; round < 20 && fewest > 2; ++round) {
    const int before = drives_;
    for (int i = 0; i < 20; ++i) thread_.wake(/*large=*/false);  // nothing is unfinished
    add(1, /*large=*/true);
    ASSERT_TRUE(done_in_time());
    fewest = std::min(fewest, drives_ - before);
  }
  thread_.stop();
  EXPECT_LE(fewest, 2);
}

TEST_F(BackgroundThreadTest, StopsBeforeItWasNeededAndDoesNothingAfterwards) {
  thread_.stop();
  work_ = 1;
  thread_.wake(/*large=*/true);
  thread_.stop();
  EXPECT_EQ(work_, 1);
  EXPECT_EQ(drives_, 0);
}

}  // namespace
}  // namespace hccl_like
