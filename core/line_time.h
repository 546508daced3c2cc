#pragma once
// How far apart the cores are that write and read lines in turns: from looks at lines that another core has just written.
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace hccl_like {

// Any thread; what two add at once may be added once.
class LineTime {
 public:
  static constexpr uint32_t kDistances = 8;
  // What counts is the median of so many looks.
  static constexpr uint32_t kLooks = 5;
  // That the cores have moved shows in the distance after so many at most.
  static constexpr uint32_t kShows = kLooks / 2 + kLooks;

  // A look that found something new. Looks that were interrupted do no harm, if they are few.
  void add(std::chrono::nanoseconds took);
  // 0 as long as it is not known; then it grows by one whenever the time doubles: 1 below 32 ns, 2 below 64 ns, ...
  uint32_t distance() const { return distance_.load(std::memory_order_relaxed); }
  // How many there were, counted round.
  uint32_t looks() const { return added_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint32_t> added_{0};
  std::atomic<uint32_t> distance_{0};
  std::array<std::atomic<uint32_t>, kLooks> looks_{};  // in ns
};

}  // namespace hccl_like
