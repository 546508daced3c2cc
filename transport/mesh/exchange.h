#pragma once
// Exchanges the records of a new group's ranks through the store.
#include "transport/mesh/mesh.h"
#include "transport/mesh/roster_tree.h"
#include "transport/security/job_key.h"

namespace hccl_like {

// Implements Mesh::exchange().
//
// A launcher such as torchrun may give restarted ranks the store of their dead predecessors. No
// value known to all ranks tells the two generations apart: agents of several hosts count restarts
// separately. So rank 0 opens a new round whenever it starts, and the other ranks look for the
// round in which rank 0 has read their record. Keys, all below "hccl_like/<size>/":
//   rounds         a counter: rounds opened by any rank 0
//   <round>        rank 0's mark, 16 random digits
//   <mark>/<rank>  a rank's own mark and its record
//   <mark>/all     by rank 0: the communicator's id, all ranks' marks, and all records
//   <mark>/complete  a counter: rank 0 adds 2^32 before it writes `all`; a rank that gives up
//                    adds 1
// A rank that finds its mark in `all` has joined. Otherwise it came after the end of an old round
// and waits for the next one. A rank that gives up at its deadline may come again with another
// mark: if it was the first to add to `complete`, rank 0 does not use its record but opens another
// round; otherwise it has joined after all.
//
// A rank makes four requests for any number of ranks; rank 0 reads every record. With a `courier`,
// `all` travels down a tree of ranks (roster_tree.h), and each rank reads its children's records:
// the store then serves O(1) bytes a rank. If settings differ that must be equal, all ranks throw
// the same error.
//
// Every value except the counter is authenticated with the job's key (security/job_key.h) under its
// store key, which contains rank 0's mark and the writer's rank. Rank 0 verifies all records and
// vouches for them in `all`. A waiting rank rewrites its record periodically. Readers re-read an
// unauthenticated value for two seconds; then all ranks throw an error that names the rank of the
// key. `scope` is authenticated with every value, so a value of another group is rejected.
Roster exchange_records(Store& store, const JobKey& job, const ProcessRecord& self, int rank,
                        int size, Deadline deadline, std::string_view scope = {},
                        RosterCourier* courier = nullptr);

}  // namespace hccl_like
