#pragma once
// Estimates the duration of calls without making them.
#include <atomic>
#include <cstdint>
#include <mutex>

#include "process_group/calls/calls.h"
#include "process_group/issue/communicators.h"

namespace hccl_like {

// Between begin() and end(), calls of a group only add the cost model's estimate for the algorithm
// that would run. Any thread, any order; no communication.
class TimeEstimate {
 public:
  // Throws kMisuse if an estimate is in progress.
  void begin();
  // Microseconds for all calls since begin(), in sequence. Throws kMisuse without begin().
  double end();
  bool active() const { return active_.load(std::memory_order_relaxed); }
  void add(const Issue& issue, const Communicators& communicators);

 private:
  std::atomic<bool> active_{false};
  std::mutex mutex_;
  uint64_t picoseconds_ = 0;
};

}  // namespace hccl_like
