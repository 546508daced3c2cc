#include "transport/same_host/life.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <new>
#include <optional>
#include <stdexcept>
#include <thread>

#include "core/base/deadline.h"

namespace hccl_like {
namespace {

// A word that a child shares with this process.
class LifeTest : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer allows no threads in a child of threads";
#endif
    memory_ = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory_, MAP_FAILED);
    word_ = new (memory_) LifeWord;
  }
  void TearDown() override {
    if (word_ != nullptr) ::munmap(memory_, 4096);
  }

  // A child that runs `child(ready)`, from when it has said `ready`.
  template <class Child>
  pid_t start(Child child) {
    int pipe[2];
    EXPECT_EQ(::pipe(pipe), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      child([&] { EXPECT_EQ(::write(pipe[1], "x", 1), 1); });
      ::_exit(0);
    }
    char said = 0;
    EXPECT_EQ(::read(pipe[0], &said, 1), 1);
    ::close(pipe[0]);
    ::close(pipe[1]);
    return pid;
  }
  static void reap(pid_t pid) { EXPECT_EQ(::waitpid(pid, nullptr, 0), pid); }

  void* memory_ = nullptr;
  LifeWord* word_ = nullptr;
};

TEST_F(LifeTest, AKilledProcessIsMarkedBeforeItsMemoryIsFreed) {
  const pid_t child = start([&](auto ready) {
    const Life life(*word_);
    ready();
    while (true) ::pause();
  });
  EXPECT_FALSE(word_->died());
  ::kill(child, SIGKILL);
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  while (!word_->died() && !deadline.expired())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(word_->died());
  reap(child);
  EXPECT_TRUE(word_->died());
}

TEST_F(LifeTest, AProcessThatLetsGoHasNotDied) {
  reap(start([&](auto ready) {
    { const Life life(*word_); }
    ready();
  }));
  EXPECT_FALSE(word_->died());
  EXPECT_EQ(word_->futex, 0u);
}

TEST_F(LifeTest, AThreadThatEndsTakesNobodyWithIt) {
  const pid_t child = start([&](auto ready) {
    static std::optional<Life> life;
    std::thread([&] { life.emplace(*word_); }).join();
    ready();
    while (true) ::pause();
  });
  EXPECT_FALSE(word_->died());
  EXPECT_NE(word_->futex, 0u);
  ::kill(child, SIGKILL);
  reap(child);
  EXPECT_TRUE(word_->died());
}

TEST(LifesThread, ItsThreadIsLentAgainAndAgain) {
  LifeWord word;
  Life life(word);
  const auto thread = word.futex.load();
  for (int round = 0; round < 3; ++round) {
    pid_t worker = 0;
    life.lend([&] { worker = ::gettid(); });
    life.take_back();
    EXPECT_EQ(worker, static_cast<pid_t>(thread));
  }
  life.take_back();  // nothing is lent: returns at once
  EXPECT_EQ(word.futex, thread);
}

TEST(LifesThread, WorkThatThrowsLetsNothingGo) {
  LifeWord word;
  Life life(word);
  life.lend([] { throw std::runtime_error("no more"); });
  life.take_back();
  EXPECT_NE(word.futex, 0u);
  bool worked = false;
  life.lend([&] { worked = true; });
  life.take_back();
  EXPECT_TRUE(worked);
}

TEST_F(LifeTest, AProcessKilledWhileItsThreadIsLentIsMarked) {
  const pid_t child = start([&](auto ready) {
    Life life(*word_);
    life.lend([&] {
      ready();
      while (true) ::pause();
    });
    while (true) ::pause();
  });
  EXPECT_FALSE(word_->died());
  ::kill(child, SIGKILL);
  reap(child);
  EXPECT_TRUE(word_->died());
}

}  // namespace
}  // namespace hccl_like
