#pragma once
// The static check of schedules: everything that can be said of them without running them.
//
// A fault is a sentence that names rank, round and steps; "" means that there is none.
#include <string>

#include "collectives/verify/job.h"

namespace hccl_like {

// One rank on its own: peers, chunks and scratch slots exist, the collective's rules on what may be
// read and written are kept, and no round writes what it reads or writes something twice; where the
// collective may run in place, also when in(c) and out(c) are the same memory. Of the job it looks
// at this rank's schedule only.
std::string check_rank(const Job& job, int rank);

// All ranks, and all of them together: every send has its receive in the round of the same number,
// with as many chunks of the same sizes, and every rank cuts the payload into as many chunks.
std::string check(const Job& job);

}  // namespace hccl_like
