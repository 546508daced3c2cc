#pragma once
// A barrier that the ranks of a benchmark pass before the clock starts. Every measured library uses
// the same barrier, so a library with a slow barrier of its own does not look slow in all
// operations.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>

namespace hccl_like::bench {

// In shared memory, zero at first. Knows no time limit: whoever starts the ranks ends them all if
// one dies.
class SharedBarrier {
 public:
  // For ranks that are forked afterwards.
  static SharedBarrier* anonymous() { return map(MAP_SHARED | MAP_ANONYMOUS, -1); }
  // For ranks that only share a file system; the first one there makes the file.
  static SharedBarrier* in_file(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ::ftruncate(file, sizeof(SharedBarrier)) != 0)
      throw std::runtime_error("cannot write " + path);
    SharedBarrier* barrier = map(MAP_SHARED, file);
    ::close(file);
    return barrier;
  }

  // Returns when all `ranks` have called it. Spins a little, then yields: ranks may share a core.
  void wait(uint32_t ranks) {
    const uint32_t round = round_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    constexpr int kSpins = 200;
    for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins)
      if (spins >= kSpins) ::sched_yield();
  }

 private:
  static SharedBarrier* map(int flags, int file) {
    void* memory = ::mmap(nullptr, sizeof(SharedBarrier), PROT_READ | PROT_WRITE, flags, file, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return static_cast<SharedBarrier*>(memory);  // zeros are a valid object: two lock-free counters
  }

  alignas(64) std::atomic<uint32_t> arrived_;
  alignas(64) std::atomic<uint32_t> round_;
};

}  // namespace hccl_like::bench
