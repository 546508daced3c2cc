#pragma once
#include "collectives/schedule.h"

namespace hccl_like {

// Appends what the direct algorithms begin with: every rank sends chunk p to rank p, and adds up the chunk that is its
// own into `sum`, in rank order and with one rounding for 8- and 16-bit floats. `sum` is out(rank) or a scratch slot.
void append_direct_reduction(Schedule& s, int rank, int size, Slot sum);

}  // namespace hccl_like
