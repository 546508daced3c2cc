#pragma once
// Runs one row on this rank: checks the results, then times the operation.
#include <cstddef>
#include <string>
#include <vector>

#include "bench/cpp/collective.h"
#include "bench/cpp/options.h"
#include "bench/cpp/shared_barrier.h"
#include "collectives/engine/communicator.h"

namespace hccl_like::bench {

// Results of one rank for one form of a row.
struct Timing {
  double median_us = 0;
  double p99_us = 0;
  size_t wrong = 0;
  double floor_us = 0;  // 0: not measured, or nothing to move
};

Timing measure(Communicator& communicator, SharedBarrier& barrier, Buffers& buffers,
               const Options& options);

// CPU seconds of the whole host and of this process.
struct CpuTime {
  double busy = 0;      // of all cores, by anyone
  double capacity = 0;  // of all cores, idle or not
  double own = 0;
  static CpuTime now();
  CpuTime operator-(const CpuTime& earlier) const;
};

}  // namespace hccl_like::bench
