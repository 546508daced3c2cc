#pragma once
// A job of so many ranks that their schedules do not fit into memory together.
#include <cstdint>
#include <functional>

#include "collectives/verify/job.h"

namespace hccl_like {

// A job whose schedules are made when they are looked at.
struct LargeJob {
  Collective collective = Collective::kBarrier;  // not a message
  int root = 0;
  int size = 1;
  bool equal_chunks = false;                // see Algorithm
  std::function<Schedule(int rank)> make;   // pure: is called several times for each rank
  std::function<uint32_t(int rank)> place;  // a numbering of the ranks, see prove_large()
};
LargeJob large_job(const Algorithm& algorithm, const Hosts& hosts, int root = 0);
// The ranks in their order. Refers to the job.
LargeJob large_job(const Job& job);

}  // namespace hccl_like
