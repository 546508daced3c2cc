#pragma once
// A piece of work in parts that several threads take one after another, until none is left.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace hccl_like {

// One thread offers, and waits until all is done before it offers again; any number take. Whoever
// comes late finds nothing, or parts of the next offer: what a part is may be looked up only once
// it is taken, and is there until it is done.
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
  // To the one that offered: what was done in the parts can be seen now.
  bool all_done() const { return undone_.load(std::memory_order_acquire) == 0; }

 private:
  std::atomic<uint32_t> left_{0};
  std::atomic<uint32_t> undone_{0};
};

}  // namespace hccl_like
