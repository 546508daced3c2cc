#pragma once
// A barrier that names the missing ranks.
#include <chrono>
#include <string>

#include "process_group/backend/store.h"

namespace hccl_like {

// Every rank reports to rank 0, which releases all when the last has arrived. It uses only the
// store, so it works with a group that hangs, and leaves the group unchanged.
// `name` is the same on all ranks and new for each call. With `wait_all_ranks` rank 0 names all
// missing ranks, otherwise the first. Throws c10's DistBackendError.
void monitored_barrier(Store& store, const std::string& name, int rank, int size,
                       std::chrono::milliseconds timeout, bool wait_all_ranks);

}  // namespace hccl_like
