#pragma once
// Static checks of schedules. A fault is a sentence with rank, round and steps; "" means none.
#include <string>

#include "collectives/verify/job.h"

namespace hccl_like {

// Checks the schedule of one rank: peers, chunks and scratch slots exist; reads and writes follow
// the collective's rules; no round writes a chunk that it reads or writes twice, also in place if
// the collective may run in place; no step mixes chunks of different sizes. Looks at no other rank.
std::string check_rank(const Job& job, int rank);

// Checks each rank, and all together: every send has a receive in the same round with the same
// number and sizes of chunks, and all ranks have the same number of chunks.
std::string check(const Job& job);

}  // namespace hccl_like
