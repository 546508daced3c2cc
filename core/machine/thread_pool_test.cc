#include "core/machine/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace hccl_like {
namespace {

constexpr size_t kLong = size_t{64} << 20;  // bytes of a pass that is worth any number of threads

// A /proc/loadavg with so many running threads. Tests run side by side: each process has its own.
class Load {
 public:
  explicit Load(const std::string& text)
      : path_(testing::TempDir() + "hccl_like_load_" + std::to_string(::getpid())) {
    std::ofstream(path_) << text;
  }
  static Load running(size_t threads) {
    return Load("0.10 0.20 0.30 " + std::to_string(threads) + "/100 4242\n");
  }
  ~Load() { std::filesystem::remove(path_); }
  Load(Load&&) = delete;
  IdleCores cores(size_t host = 0) const { return IdleCores(path_.c_str(), host); }

 private:
  std::string path_;
};

size_t threads_named(const std::string& name) {
  size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string line;
    std::getline(std::ifstream(task.path() / "comm"), line);
    if (line == name) ++count;
  }
  return count;
}
size_t thread_pool_threads() { return threads_named("hccl-like pool"); }

TEST(ThreadPool, EveryPartIsDoneOnceHoweverManyHandsThereAre) {
  ThreadPool thread_pool;
  for (const size_t threads : {1, 2, 3, 8, 100})
    for (const uint32_t parts : {0u, 1u, 2u, 7u, 1000u}) {
      std::vector<std::atomic<int>> times(parts);
      thread_pool.run(threads, parts, [&](uint32_t part) { ++times[part]; });
      for (const auto& one : times)
        EXPECT_EQ(one, 1) << threads << " threads, " << parts << " parts";
    }
  EXPECT_LE(thread_pool.helpers(), ThreadPool::kMostHands - 1);
}

TEST(ThreadPool, HasNoThreadBeforeItNeedsOneAndNoneAfterItsEnd) {
  const size_t before = thread_pool_threads();
  {
    ThreadPool thread_pool;
    thread_pool.run(1, 100, [](uint32_t) {});
    thread_pool.run(4, 1, [](uint32_t) {});
    EXPECT_EQ(thread_pool_threads(), before);
    thread_pool.run(3, 100, [](uint32_t) {});
    EXPECT_EQ(thread_pool_threads(), before + 2);
    thread_pool.run(3, 100, [](uint32_t) {});
    EXPECT_EQ(thread_pool_threads(), before + 2) << "they are used again";
  }
  EXPECT_EQ(thread_pool_threads(), before);
}

TEST(ThreadPool, ThreadsTakePartsWhileTheCallerIsBusyWithOne) {
  ThreadPool thread_pool;
  std::atomic<bool> other_began{false};
  const pid_t caller = ::gettid();
  thread_pool.run(2, 2, [&](uint32_t) {
    if (::gettid() != caller) {
      other_began = true;
      other_began.notify_one();
      return;
    }
    // Ends only because the helper takes the other part.
    other_began.wait(false);
  });
  EXPECT_TRUE(other_began);
}

TEST(ThreadPool, WhoeverFindsItAtWorkWorksAlone) {
  ThreadPool thread_pool;
  std::set<pid_t> threads;
  thread_pool.run(2, 2, [&](uint32_t part) {
    if (part != 0) return;
    const pid_t self = ::gettid();
    thread_pool.run(2, 50, [&](uint32_t) { threads.insert(::gettid()); });
    EXPECT_EQ(threads, std::set<pid_t>{self});
  });
}

TEST(ThreadPool, AChildOfForkMakesItsOwnHelpers) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer allows no threads in a child of threads";
#endif
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "a child of AddressSanitizer inherits locks that another thread held";
#endif
  ThreadPool thread_pool;
  thread_pool.run(2, 10, [](uint32_t) {});
  const pid_t child = ::fork();
  if (child == 0) {
    bool right = thread_pool.helpers() == 0;
    std::atomic<int> done{0};
    thread_pool.run(2, 10, [&](uint32_t) { ++done; });
    right = right && done == 10 && thread_pool.helpers() == 1;
    { const ThreadPool other; }
    thread_pool.~ThreadPool();
    ::_exit(right && thread_pool_threads() == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(thread_pool.helpers(), 1u);
}

TEST(ThreadPool, HelpsWithLongPassesOnlyAndOnlyWhereCoresAreIdle) {
  const Load load = Load::running(1);
  const size_t usable = load.cores().usable();
  ThreadPool thread_pool(0, load.cores(usable));
  EXPECT_EQ(thread_pool.threads(kLong, 1), std::min(usable, ThreadPool::kMostHands))
      << "this thread is the only one";
  EXPECT_EQ(thread_pool.threads(2 * ThreadPool::kBytesPerHand - 1, 1), 1u);
  EXPECT_EQ(thread_pool.threads(2 * ThreadPool::kBytesPerHand, 1), std::min(usable, size_t{2}));
  EXPECT_EQ(ThreadPool(1, load.cores()).threads(kLong, 1), 1u) << "never";
  EXPECT_LE(ThreadPool(2, load.cores()).threads(kLong, 1), 2u);
  EXPECT_EQ(thread_pool.threads(kLong, 0), 1u);
}

TEST(ThreadPool, NeverHelpsWhereCoresAreBusy) {
  const size_t usable = IdleCores().usable();
  const Load load = Load::running(usable);
  EXPECT_EQ(ThreadPool(0, load.cores(usable)).threads(kLong, 1), 1u);
  const Load more = Load::running(usable * 100);
  EXPECT_EQ(ThreadPool(0, more.cores(usable)).threads(kLong, 1), 1u);
}

TEST(ThreadPool, CoresOfOtherRanksAreNotTaken) {
  const Load load = Load::running(1);
  const size_t usable = load.cores().usable();
  ThreadPool shared(0, load.cores(usable));
  EXPECT_EQ(shared.threads(kLong, usable), 1u) << "a core for each";
  EXPECT_EQ(shared.threads(kLong, 2 * usable), 1u);
  ThreadPool own(0, load.cores(4 * usable));
  EXPECT_EQ(own.threads(kLong, 4), std::min(usable, ThreadPool::kMostHands))
      << "as many cores for each rank";
}

TEST(ThreadPool, NeverHelpsWhereTheLoadCannotBeTold) {
  for (const char* text : {"", "0.0 0.0 0.0", "0.0 0.0 0.0 0/0 0\n", "0.0 0.0 0.0 many/few 0\n"}) {
    const Load load{std::string(text)};
    EXPECT_EQ(load.cores().idle(), 0u) << text;
    EXPECT_EQ(ThreadPool(0, load.cores()).threads(kLong, 1), 1u) << text;
  }
  EXPECT_EQ(IdleCores("/nowhere").idle(), 0u);
}

// Threads of another process that keep every core busy.
TEST(ThreadPool, SeesOthersAtWork) {
  std::vector<pid_t> burners;
  for (size_t i = 0; i < IdleCores().host(); ++i) {
    const pid_t burner = ::fork();
    if (burner == 0) {
      std::atomic<uint64_t> turns{0};
      while (true) ++turns;
    }
    burners.push_back(burner);
  }
  ThreadPool thread_pool;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(thread_pool.threads(kLong, 1), 1u);
  for (const pid_t burner : burners) ::kill(burner, SIGKILL);
  for (const pid_t burner : burners) ::waitpid(burner, nullptr, 0);
}

TEST(IdleCores, CountsTheAffinityMaskOfTheCaller) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  const IdleCores cores;
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(cores.usable(), 1u);
  EXPECT_EQ(cores.idle(), 0u) << "this thread runs on it";
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace hccl_like
