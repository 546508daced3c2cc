#pragma once
// How the ranks of a group come to map each other's memory.
#include <memory>
#include <string>
#include <vector>

#include "core/base/deadline.h"
#include "process_group/symmetric/allocation.h"
#include "process_group/symmetric/signals.h"
#include "transport/network/store.h"

namespace hccl_like {

struct Meeting {
  std::string group;
  std::string communicator;  // its id, where the group is of this backend; the same on all ranks
  std::string prefix;  // of the keys in the store; the same on all ranks and never used before
  int rank = 0;
  int ranks = 1;
};

// What a rank has afterwards.
struct Acquaintance {
  std::shared_ptr<Signals> signals;
  std::vector<std::unique_ptr<PeerAllocation>> peers;  // by rank, null for itself
};

// To be called by all ranks with an Allocation of the same size. Either all of them succeed or all
// of them throw; what they throw names the ranks that are to blame. Three exchanges through the
// store: a random number of each rank, what each has, and whether each could map what the others
// have. The communicator's id and all random numbers are in what is proved from the second exchange
// on, so that nothing from another meeting, group or job fits, whoever copies it into the store.
Acquaintance rendezvous(Store& store, const Meeting& meeting, const Allocation& allocation,
                        Deadline deadline);

}  // namespace hccl_like
