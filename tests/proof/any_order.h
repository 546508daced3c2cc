#pragma once
// Runs a job as an engine may: the steps of a round in any order, each rank at its own pace.
#include <cstdint>
#include <string>

#include "collectives/verify/job.h"
#include "collectives/verify/prove.h"

namespace hccl_like {

// Runs the job on numbers drawn from `seed`, in an order drawn from it too. Returns a fault, or ""
// if every rank comes to its end, no message is left over, and every output is what the collective
// promises of these numbers. Shares no code with prove(). The job must have passed check().
std::string run_in_any_order(const Job& job, Memory memory, uint64_t seed);

}  // namespace hccl_like
