#pragma once
// Parts of one task that several threads claim until none is left.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace hccl_like {

// One thread calls offer(), and waits for all_done() before the next offer(). Any thread may call
// take(). A late take() returns nothing or a part of the next offer: look up a part's data only
// after take(). The data stays valid until done().
class Parts {
 public:
  void offer(uint32_t count) {
    undone_.store(count, std::memory_order_relaxed);
    left_.store(count, std::memory_order_release);
  }
  std::optional<uint32_t> take() {
    uint32_t left = left_.load(std::memory_order_relaxed);
    while (left != 0)
      if (left_.compare_exchange_weak(left, left - 1, std::memory_order_acquire,
                                      std::memory_order_relaxed))
        return left - 1;
    return std::nullopt;
  }
  void done() { undone_.fetch_sub(1, std::memory_order_release); }
  // For the offering thread. If true, the effects of all parts are visible.
  bool all_done() const { return undone_.load(std::memory_order_acquire) == 0; }

 private:
  std::atomic<uint32_t> left_{0};
  std::atomic<uint32_t> undone_{0};
};

}  // namespace hccl_like
