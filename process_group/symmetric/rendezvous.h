#pragma once
// How the ranks of a group come to map each other's memory.
#include <memory>
#include <string>
#include <vector>

#include "core/deadline.h"
#include "process_group/symmetric/allocation.h"
#include "process_group/symmetric/signals.h"
#include "transport/store.h"

namespace hccl_like {

struct Meeting {
  std::string group;
  std::string prefix;  // of the keys in the store; the same on all ranks and never used before
  int rank = 0;
  int ranks = 1;
};

// What a rank has afterwards.
struct Acquaintance {
  std::shared_ptr<Signals> signals;
  std::vector<std::unique_ptr<PeerAllocation>> peers;  // by rank, null for itself
};

// To be called by all ranks with an Allocation of the same size. Either all of them succeed or all of them throw; what
// they throw names the ranks that are to blame. Two exchanges through the store: what each has, and whether each could
// map what the others have.
Acquaintance rendezvous(Store& store, const Meeting& meeting, const Allocation& allocation,
                        Deadline deadline);

}  // namespace hccl_like
