#pragma once
// How long calls would take, without making them.
#include <atomic>
#include <cstdint>
#include <mutex>

#include "process_group/calls/calls.h"
#include "process_group/issue/communicators.h"

namespace hccl_like {

// Between begin() and end() the calls of a group are not made but added up here, in any order and
// by any thread. What one takes is the cost model's estimate for the algorithm that would carry it
// out; no rank hears of it.
class TimeEstimate {
 public:
  // Throws kMisuse if one is being made.
  void begin();
  // Microseconds for all calls since begin(), one after the other. Throws kMisuse without a
  // begin().
  double end();
  bool active() const { return active_.load(std::memory_order_relaxed); }
  void add(const Issue& issue, const Communicators& communicators);

 private:
  std::atomic<bool> active_{false};
  std::mutex mutex_;
  uint64_t picoseconds_ = 0;
};

}  // namespace hccl_like
