#include "collectives/algorithms/all.h"
#include "collectives/algorithms/parts.h"

namespace hccl_like {

// The broadcast over leaders reversed: one sum leaves every host. For small payloads.
// Paper: Karonis et al., Exploiting Hierarchy in Parallel Computer Networks ..., IPDPS 2000.
// Order of summation: a binary tree on each host, then one over the hosts. 8- and 16-bit floats are
// rounded in every round.
//
// Ranks 0 and 1 on one host, 2 and 3 on another, root 1; rank 3 only sends in[0] to rank 2:
//   rank 0            rank 1                                rank 2
//   0: send in[0]->1  recv_reduce in[0]+<-0 to scratch[0]   recv_reduce in[0]+<-3 to scratch[0]
//   1: idle           recv_reduce scratch[0]+<-2 to out[0]  send scratch[0]->1
Schedule reduce_leaders_binomial(int rank, const Hosts& hosts, int root) {
  Schedule s(/*chunks=*/1);
  const int host = hosts.host(rank), home = hosts.host(root);
  const auto local = hosts.ranks(host);
  std::vector<int> leaders = Shards(hosts, 1).rail(0);
  leaders[static_cast<size_t>(home)] = root;
  const int leader = leaders[static_cast<size_t>(host)];

  std::vector<SubSchedule> on_host, over_hosts;
  Slot sum = in(0);
  if (local.size() > 1) {
    if (rank == leader) sum = s.add_scratch(in(0));
    on_host.push_back({.schedule = reduce_binomial(
                           hosts.place(rank), static_cast<int>(local.size()), hosts.place(leader)),
                       .members = {local.begin(), local.end()},
                       .in = in(0),
                       .out = sum});
  }
  if (rank == leader)
    over_hosts.push_back({.schedule = reduce_binomial(host, hosts.count(), home),
                          .members = leaders,
                          .in = sum,
                          .out = out(0)});
  append_parts(s, on_host, tree_rounds(hosts.most()));
  append_parts(s, over_hosts, tree_rounds(hosts.count()));
  return s;
}

// Sums each shard on its host, then up a chain of hosts along its rail; the root gathers the shards
// from its local peers. Slices pipeline along the rails.
// Order of summation: the ranks of a host in rank order, then the hosts from the one before the
// root's down to the root's, with one rounding each for 8- and 16-bit floats.
//
// Ranks 0 and 1 on one host, 2 and 3 on another, root 1, rank 0:
//   0: send in[1]->1  recv_reduce in[0]+<-1 to scratch[0]
//   1: recv_reduce scratch[0]+<-2 to scratch[0]
//   2: idle
//   3: send scratch[0]->1
Schedule reduce_rails_chain(int rank, const Hosts& hosts, int root) {
  const int host = hosts.host(rank), home = hosts.host(root);
  const Shards shards(hosts, hosts.most());
  Schedule s(static_cast<uint32_t>(shards.count()));
  const int first = shards.begin(rank), end = shards.end(rank);
  const Slot sums = scratch(0);
  for (int shard = first; shard < end; ++shard) s.add_scratch(in(shard));
  const bool alone = hosts.on(host) == 1;

  append_sums_on_host(s, hosts, shards, 1, rank, sums);
  std::vector<SubSchedule> parts;
  for (int shard = first; shard < end; ++shard) {
    const Slot sum = scratch(sums.index + static_cast<uint32_t>(shard - first));
    parts.push_back({.schedule = reduce_chain(host, hosts.count(), home),
                     .members = shards.rail(shard),
                     .first_chunk = shard,
                     .in = alone ? in(shard) : sum,
                     .out = rank == root ? out(shard) : sum});
  }
  append_parts(s, parts, static_cast<size_t>(hosts.count()));
  s.begin_round();
  if (host != home) return s;
  if (rank != root) s.add(send(root, sums, static_cast<uint32_t>(end - first)));
  for (const int peer : hosts.ranks(home)) {
    if (rank != root || peer == root) continue;
    s.add(recv(peer, out(shards.begin(peer)),
               static_cast<uint32_t>(shards.end(peer) - shards.begin(peer))));
  }
  return s;
}

}  // namespace hccl_like
