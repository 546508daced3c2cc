#include "transport/mesh/accept_thread.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

#include "core/base/deadline.h"

namespace hccl_like {
namespace {

// Connections are what an eventfd counts.
class AcceptThreadTest : public testing::Test {
 protected:
  void start() {
    thread_.start(listener_.get(), nullptr, [this] {
      ++calls_;
      if (busy_) return false;
      uint64_t count = 0;
      if (::read(listener_.get(), &count, sizeof count) == sizeof count) accepted_ += count;
      return true;
    });
  }
  void connect() { ASSERT_EQ(::eventfd_write(listener_.get(), 1), 0); }
  static bool in_time(const std::function<bool()>& done) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    while (!done() && !deadline.expired()) std::this_thread::yield();
    return done();
  }

  const Fd listener_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::atomic<uint64_t> accepted_{0};
  std::atomic<int> calls_{0};
  std::atomic<bool> busy_{false};
  AcceptThread thread_;
};

TEST_F(AcceptThreadTest, AcceptsWhenAPeerConnects) {
  start();
  for (uint64_t i = 1; i <= 10; ++i) {
    connect();
    ASSERT_TRUE(in_time([&] { return accepted_ == i; })) << i;
  }
  thread_.end();
}

TEST_F(AcceptThreadTest, LooksAgainAfterAnotherThreadWasBusy) {
  busy_ = true;
  start();
  connect();
  ASSERT_TRUE(in_time([&] { return calls_ >= 3; }));
  EXPECT_EQ(accepted_, 0u);
  busy_ = false;
  EXPECT_TRUE(in_time([&] { return accepted_ == 1; }));
}

TEST_F(AcceptThreadTest, ServesWhenItIsRung) {
  thread_.ring();  // nobody hears this
  start();
  start();  // it runs already
  thread_.ring();
  EXPECT_TRUE(in_time([&] { return calls_ >= 1; }));
  EXPECT_EQ(accepted_, 0u);
}

TEST_F(AcceptThreadTest, EndsWithoutAStartAndDoesNotStartAfterwards) {
  thread_.end();
  start();
  connect();
  thread_.ring();
  thread_.end();
  EXPECT_EQ(calls_, 0);
}

}  // namespace
}  // namespace hccl_like
