#pragma once
// How one side of a ring goes to sleep without missing what the other side does at that moment.
#include <atomic>
#include <cstdint>

#include "core/machine/fence.h"

namespace hccl_like {

// A word in shared memory: "I sleep, or am about to".
//
//   sleeper: arm; look at the index; sleep on the doorbell if there is still nothing; disarm
//   waker:   store the index; must_wake; ring the doorbell if true
//
// Both sides store, then load what the other stored, with a full fence in between, so at least one
// of them sees the other (Dekker): either the sleeper finds the index changed, or the waker finds
// it armed. A waker that sees it armed disarms it, so that one sleep costs one ring.
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
  // The same where the caller has made the fence.
  bool must_wake_after_fence() noexcept {
    return armed_.load(std::memory_order_relaxed) != 0 &&
           armed_.exchange(0, std::memory_order_relaxed) != 0;
  }

 private:
  std::atomic<uint32_t> armed_{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace hccl_like
