#pragma once
// How the ranks of a new group learn who they are, through the store.
#include <string>

#include "transport/mesh.h"

namespace hccl_like {

// What Mesh::exchange does. `attempt` tells restarts of the whole job apart (TORCHELASTIC_RESTART_COUNT).
//
// Keys, all below "hccl_like/<attempt>/<size>/":
//   arrivals            a counter; the n-th arrival belongs to generation (n - 1) / size
//   <generation>/<rank> that rank's record
//   <generation>/all    the communicator's id and all records, by rank 0
// A rank makes three requests, however many there are; rank 0 reads every record. All throw the same where settings differ
// that must be alike. A store that has served a complete generation is as good as a new one; one in which a generation was
// left incomplete needs another prefix or attempt, as every launcher gives.
Roster exchange_records(Store& store, const ProcessRecord& self, const std::string& attempt,
                        int rank, int size, Deadline deadline);

}  // namespace hccl_like
