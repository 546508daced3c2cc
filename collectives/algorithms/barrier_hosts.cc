#include <bit>

#include "collectives/algorithms/all.h"
#include "collectives/algorithms/parts.h"

namespace hccl_like {

// The leader of each host waits for its local peers, runs a dissemination barrier with the other
// leaders, and releases its local peers. A round takes one message per host, not per rank.
// Paper: Hensgen, Finkel, Manber, Two Algorithms for Barrier Synchronization, IJPP 17(1), 1988.
//
// Ranks 0 and 1 on one host, 2 and 3 on another:
//   rank 0                            rank 1
//   0: recv scratch[0]<-1             send in[0]->0
//   1: send in[0]->2  recv out[0]<-2  idle
//   2: send in[0]->1                  recv out[0]<-0
Schedule barrier_leaders(int rank, const Hosts& hosts) {
  Schedule s(/*chunks=*/1);
  const auto local = hosts.ranks(hosts.host(rank));
  const bool leads = rank == local[0];
  s.begin_round();
  if (!leads) s.add(send(local[0], in(0)));
  for (size_t i = 1; i < local.size() && leads; ++i) s.add(recv(local[i], s.add_scratch(in(0))));

  std::vector<SubSchedule> parts;
  if (leads)
    parts.push_back({.schedule = barrier_dissemination(hosts.host(rank), hosts.count()),
                     .members = Shards(hosts, 1).rail(0),
                     .in = in(0),
                     .out = out(0)});
  append_parts(s, parts,
               static_cast<size_t>(std::bit_width(static_cast<unsigned>(hosts.count() - 1))));

  s.begin_round();
  if (!leads) s.add(recv(local[0], out(0)));
  for (size_t i = 1; i < local.size() && leads; ++i) s.add(send(local[i], in(0)));
  return s;
}

}  // namespace hccl_like
