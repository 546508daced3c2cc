#pragma once
// How the ranks of a new group learn who they are, through the store.
#include "transport/mesh/mesh.h"
#include "transport/security/job_key.h"

namespace hccl_like {

// What Mesh::exchange does.
//
// A launcher that starts ranks again may leave them the store of those that died, as torchrun does,
// and nothing that all of them know tells the two apart (agents of several hosts count restarts
// each for itself). So rank 0, whenever it comes, opens a new round, and the others look for the
// round in which rank 0 has met them. Keys, all below "hccl_like/<size>/":
//   rounds         a counter: rounds that a rank 0 has opened
//   <round>        its mark, 16 random digits
//   <mark>/<rank>  a rank's own mark and its record
//   <mark>/all     the communicator's id, all ranks' marks, and all records, by rank 0
// A rank that finds its mark in `all` is there; one that does not has come after the end of an old
// round and waits for the next.
//
// A rank makes four requests, however many there are; rank 0 reads every record. All throw the same
// where settings differ that must be alike.
//
// Every value but the counter is proved with the job's key (security/job_key.h), under its key in
// the store, which holds rank 0's mark and the writer's rank. Rank 0 checks the records and answers
// for all of them in `all`. What is not proved is looked at again for two seconds, and a rank that
// waits repeats its record now and then; then it is refused, by all ranks, with the rank in whose
// name it stands. `scope` is proved with every value: a value of another group does not pass for
// one of this group.
Roster exchange_records(Store& store, const JobKey& job, const ProcessRecord& self, int rank,
                        int size, Deadline deadline, std::string_view scope = {});

}  // namespace hccl_like
