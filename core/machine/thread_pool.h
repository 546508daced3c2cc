#pragma once
// Thread pool for large passes over memory; uses only idle cores.
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

// Starts threads on demand, blocks signals in them, joins them in the destructor. Thread-safe. If
// the pool is busy with another caller's work, the caller works alone. A forked child starts
// without helpers.
class ThreadPool {
 public:
  // A few cores saturate a socket's memory bandwidth.
  static constexpr size_t kMostHands = 8;
  // Two threads gain from 8 MiB on: a wake-up takes about 20 us, and the data may be cached.
  static constexpr size_t kBytesPerHand = 4 << 20;

  // `most`: maximum threads including the caller; 0: automatic; 1: caller only.
  explicit ThreadPool(size_t most = 0, IdleCores idle = IdleCores());
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Threads to use now for a pass over `bytes`, including the caller. 1 unless the pass is long and
  // cores are idle that none of the `ranks` of this host needs.
  size_t threads(size_t bytes, size_t ranks);

  // Calls work(part) for each part in [0, parts) on at most `threads` threads. Blocks until all are
  // done. `work` must not throw.
  template <class Work>
  void run(size_t threads, uint32_t parts, const Work& work) {
    run(
        threads, parts,
        [](const void* it, uint32_t part) { (*static_cast<const Work*>(it))(part); }, &work);
  }

  size_t helpers() const;

 private:
  using Call = void (*)(const void* work, uint32_t part);
  using Clock = std::chrono::steady_clock;

  struct Helper {
    alignas(128) std::atomic<uint32_t> rings{0};
    std::thread thread;
  };
  // One per process: a forked child abandons the parent's team.
  struct Team {
    std::mutex mutex;  // held by the offering thread
    Parts parts;
    Call call = nullptr;  // of the offered work; stable until all parts are done
    const void* work = nullptr;
    std::atomic<bool> ending{false};
    std::array<Helper, kMostHands - 1> helpers;
    std::atomic<size_t> started{0};  // only grows; helpers start in index order
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
  // End and helper count of the last pass.
  std::atomic<Clock::time_point> ended_{Clock::time_point{}};
  std::atomic<size_t> had_{0};
  // No helpers until then: a helper lost its core and delayed a pass.
  std::atomic<Clock::time_point> rests_until_{Clock::time_point{}};
};

}  // namespace hccl_like
