#pragma once
// A barrier that finds out who is missing.
#include <chrono>
#include <string>

#include "process_group/backend/store.h"

namespace hccl_like {

// Every rank reports to rank 0, which lets all go once everybody is there. It goes through the
// store and not through the group, so that it works, and can name the missing, however badly the
// group is stuck, and leaves the group as it was.
//
// `name` is the same on all ranks and new for each call. With `wait_all_ranks` rank 0 names all
// ranks that are missing, else the first. Throws c10's DistBackendError.
void monitored_barrier(Store& store, const std::string& name, int rank, int size,
                       std::chrono::milliseconds timeout, bool wait_all_ranks);

}  // namespace hccl_like
