#pragma once
// Rendezvous: the ranks of a group map each other's memory.
#include <memory>
#include <string>
#include <vector>

#include "core/base/deadline.h"
#include "process_group/symmetric/allocation.h"
#include "process_group/symmetric/signals.h"
#include "transport/network/store.h"

namespace hccl_like {

struct Handshake {
  std::string group;
  std::string communicator;  // communicator id if the group uses this backend; same on all ranks
  std::string prefix;        // unique key prefix in the store; same on all ranks
  int rank = 0;
  int ranks = 1;
};

// Result of a rendezvous.
struct Acquaintance {
  std::shared_ptr<Signals> signals;
  std::vector<std::unique_ptr<PeerAllocation>> peers;  // by rank, null for itself
};

// Collective call with Allocations of one size. Either every rank succeeds or every rank throws;
// the error names the ranks at fault. Exchanges random numbers, offers and mapping results through
// the store. From the offers on, authentication covers the communicator id and all random numbers,
// so values of another rendezvous, group or job are rejected.
Acquaintance rendezvous(Store& store, const Handshake& handshake, const Allocation& allocation,
                        Deadline deadline);

}  // namespace hccl_like
