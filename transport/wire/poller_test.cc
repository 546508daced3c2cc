#include "transport/wire/poller.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <functional>
#include <thread>

#include "core/base/error.h"

namespace hccl_like {
namespace {

struct Calls : Pollable {
  void ready(unsigned now) override {
    ++count;
    events |= now;
    if (then) then();
  }
  int count = 0;
  unsigned events = 0;
  std::function<void()> then;
};

struct Pair {
  Pair() {
    std::array<int, 2> fds;
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()), 0);
    near.reset(fds[0]);
    far.reset(fds[1]);
  }
  void send() { EXPECT_EQ(::write(far.get(), "x", 1), 1); }
  Fd near, far;
};

TEST(Poller, CallsWhatIsReady) {
  Poller poller;
  Pair quiet, busy;
  Calls quiet_calls, busy_calls;
  poller.watch(quiet.near.get(), EPOLLIN, quiet_calls);
  poller.watch(busy.near.get(), EPOLLIN, busy_calls);
  EXPECT_FALSE(poller.poll());
  busy.send();
  EXPECT_TRUE(poller.poll());
  EXPECT_TRUE(poller.poll()) << "level-triggered: the byte is still there";
  EXPECT_EQ(busy_calls.count, 2);
  EXPECT_EQ(busy_calls.events, unsigned{EPOLLIN});
  EXPECT_EQ(quiet_calls.count, 0);
}

TEST(Poller, ForgetsAndWatchesAgain) {
  Poller poller;
  Pair pair;
  Calls calls;
  pair.send();
  poller.watch(pair.near.get(), EPOLLIN, calls);
  poller.rewatch(pair.near.get(), 0, calls);
  EXPECT_FALSE(poller.poll());
  poller.forget(pair.near.get());
  poller.forget(pair.near.get());
  poller.watch(pair.near.get(), EPOLLIN | EPOLLOUT, calls);
  EXPECT_TRUE(poller.poll());
  EXPECT_EQ(calls.events, unsigned{EPOLLIN | EPOLLOUT});
}

TEST(Poller, DoesNotCallWhatWasForgottenInTheSameRound) {
  Poller poller;
  Pair one, two;
  Calls one_calls, two_calls;
  poller.watch(one.near.get(), EPOLLIN, one_calls);
  poller.watch(two.near.get(), EPOLLIN, two_calls);
  one_calls.then = [&] { poller.forget(two.near.get()); };
  two_calls.then = [&] { poller.forget(one.near.get()); };
  one.send();
  two.send();
  EXPECT_TRUE(poller.poll());
  EXPECT_EQ(one_calls.count + two_calls.count, 1);
}

TEST(Poller, DoesNotTakeASuccessorForTheForgottenDescriptor) {
  Poller poller;
  Pair one, two;
  Calls one_calls, two_calls, successor;
  poller.watch(one.near.get(), EPOLLIN, one_calls);
  poller.watch(two.near.get(), EPOLLIN, two_calls);
  const auto replace = [&](Pair& other) {
    const int number = other.near.get();
    poller.forget(number);
    Pair fresh;
    ASSERT_EQ(::dup3(fresh.near.get(), number, O_CLOEXEC), number);
    poller.watch(number, EPOLLIN, successor);
  };
  one_calls.then = [&] { replace(two); };
  two_calls.then = [&] { replace(one); };
  one.send();
  two.send();
  poller.poll();
  EXPECT_EQ(successor.count, 0);
}

TEST(Poller, ASleeperWakesWhenADescriptorIsReady) {
  Poller poller;
  Pair pair;
  Calls calls;
  poller.watch(pair.near.get(), EPOLLIN, calls);
  std::thread sender([&] { pair.send(); });
  while (calls.count == 0) poller.sleep(Deadline::never());
  sender.join();
  EXPECT_EQ(calls.count, 1);
}

TEST(Poller, ARingBeforeSleepingIsNotLost) {
  Poller poller;
  poller.ring();
  poller.ring();
  EXPECT_FALSE(poller.poll()) << "poll leaves the doorbell to sleep";
  const auto begin = Deadline::Clock::now();
  poller.sleep(Deadline::never());
  EXPECT_LT(Deadline::Clock::now() - begin, std::chrono::milliseconds(90));
  poller.sleep(Deadline::after(std::chrono::milliseconds(20)));
  EXPECT_GE(Deadline::Clock::now() - begin, std::chrono::milliseconds(20)) << "rang once only";
}

TEST(Poller, NeverSleepsLongerThanATenthOfASecond) {
  Poller poller;
  const auto begin = Deadline::Clock::now();
  poller.sleep(Deadline::never());
  EXPECT_GE(Deadline::Clock::now() - begin, std::chrono::milliseconds(99));
}

TEST(Poller, TellsThatADescriptorCannotBeWatched) {
  Poller poller;
  Calls calls;
  EXPECT_THROW(poller.watch(-1, EPOLLIN, calls), Exception);
}

}  // namespace
}  // namespace hccl_like
