#pragma once
// Helpers of the thread that works: for large passes over memory, and only while cores are idle.
#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>

#include "core/base/parts.h"
#include "core/machine/idle_cores.h"

namespace hccl_like {

// Its threads begin with the first work that needs them, sleep between, and end with it. They take
// no signals. Any thread; one that finds the thread pool at work for another works alone. In a
// child of fork() it begins anew without helpers.
class ThreadPool {
 public:
  // More threads move no more bytes: a few cores take all the bandwidth that a socket's memory has.
  static constexpr size_t kMostHands = 8;
  // Waking a helper takes some 20 us, and what it works on may lie in the caller's cache: measured,
  // two threads gain from 8 MiB on.
  static constexpr size_t kBytesPerHand = 4 << 20;

  // `most`: threads at most, the caller's own among them; 0: as it sees fit; 1: never anybody
  // else's.
  explicit ThreadPool(size_t most = 0, IdleCores idle = IdleCores());
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // How many threads a pass over `bytes` should have at this moment, the caller's own among them: 1
  // unless the pass is long and cores are idle that none of the `ranks` of this host will want for
  // itself.
  size_t threads(size_t bytes, size_t ranks);

  // Calls work(part) for each part from 0 to parts - 1, on so many threads at most; returns when
  // all are done. `work` throws nothing.
  template <class Work>
  void run(size_t threads, uint32_t parts, const Work& work) {
    run(
        threads, parts,
        [](const void* it, uint32_t part) { (*static_cast<const Work*>(it))(part); }, &work);
  }

  // How many threads it has.
  size_t helpers() const;

 private:
  using Call = void (*)(const void* work, uint32_t part);
  using Clock = std::chrono::steady_clock;

  struct Helper {
    alignas(128) std::atomic<uint32_t> rings{0};
    std::thread thread;
  };
  // What a child of fork() leaves behind as it is.
  struct Team {
    std::mutex mutex;  // of whoever offers work
    Parts parts;
    Call call = nullptr;  // of the work offered; stable while a part of it is not done
    const void* work = nullptr;
    std::atomic<bool> ending{false};
    std::array<Helper, kMostHands - 1> helpers;
    std::atomic<size_t> started{0};  // only ever more; in order
    const pid_t process;

    explicit Team(pid_t of) : process(of) {}
    void work_off();
    void help(Helper& self);
    bool wake(size_t helper);
  };

  void run(size_t threads, uint32_t parts, Call call, const void* work);
  Team& team();
  void wait_for_helpers(Team& team);

  size_t just_at_work(Clock::time_point now) const;

  const size_t most_;
  const IdleCores idle_;
  std::atomic<Team*> team_{nullptr};
  // When the last pass ended, and how many helpers it had.
  std::atomic<Clock::time_point> ended_{Clock::time_point{}};
  std::atomic<size_t> had_{0};
  // A helper that lost its core kept everybody waiting: no help until then.
  std::atomic<Clock::time_point> rests_until_{Clock::time_point{}};
};

}  // namespace hccl_like
