#pragma once
// Sleep and wake-up protocol of one side of a ring, without lost wake-ups.
#include <atomic>
#include <cstdint>

#include "core/machine/fence.h"

namespace hccl_like {

// "I sleep, or am about to", in shared memory.
//   sleeper: arm; check the index; sleep on the doorbell if nothing changed; disarm
//   waker:   store the index; must_wake; ring the doorbell if true
// Each side stores, executes a full fence, then loads the other's store (Dekker). So the sleeper
// sees the new index, or the waker sees the armed word. The waker disarms it: one ring per sleep.
class Sleeper {
 public:
  void arm() noexcept {
    armed_.store(1, std::memory_order_relaxed);
    full_fence();
  }
  void disarm() noexcept {
    if (armed_.load(std::memory_order_relaxed) != 0) armed_.store(0, std::memory_order_relaxed);
  }
  bool must_wake() noexcept {
    full_fence();
    return must_wake_after_fence();
  }
  // The same, after a full fence by the caller.
  bool must_wake_after_fence() noexcept {
    return armed_.load(std::memory_order_relaxed) != 0 &&
           armed_.exchange(0, std::memory_order_relaxed) != 0;
  }

 private:
  std::atomic<uint32_t> armed_{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace hccl_like
