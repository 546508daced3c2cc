#include "collectives/algorithms/all.h"
#include "collectives/algorithms/parts.h"

namespace hccl_like {

namespace {

// The root sends a shard to each local peer, shards travel along rails, then local peers share.
Schedule over_rails(int rank, const Hosts& hosts, int root, Schedule (*along_rail)(int, int, int),
                    size_t rail_rounds) {
  const int host = hosts.host(rank), home = hosts.host(root);
  const Schedule rail = along_rail(host, hosts.count(), home);
  const auto chunks = static_cast<int>(rail.chunks());  // of a shard
  const Shards shards(hosts, hosts.most());
  const auto first = [&](int owner) { return shards.begin(owner) * chunks; };
  const auto count = [&](int owner) { return (shards.end(owner) - shards.begin(owner)) * chunks; };

  Schedule s(static_cast<uint32_t>(shards.count() * chunks));
  s.begin_round();
  if (rank == root) {
    for (const int peer : hosts.ranks(home))
      if (peer != root) s.add(send(peer, in(first(peer)), count(peer)));
  } else if (host == home) {
    s.add(recv(root, out(first(rank)), count(rank)));
  }
  std::vector<SubSchedule> parts;
  for (int shard = shards.begin(rank); shard < shards.end(rank); ++shard)
    parts.push_back({.schedule = rail,
                     .members = shards.rail(shard),
                     .first_chunk = shard * chunks,
                     .in = rank == root ? in(shard * chunks) : out(shard * chunks),
                     .out = out(shard * chunks),
                     .copies = false});
  append_parts(s, parts, rail_rounds);
  if (rank == root) {
    s.begin_round();
    s.add(copy(in(0), out(0), s.chunks()));
    for (const int peer : hosts.ranks(home))
      if (peer != root) s.add(send(peer, in(first(root)), count(root)));
  } else {
    append_gather_on_host(s, hosts, shards, chunks, rank, root);
  }
  return s;
}

}  // namespace

// A tree of hosts, then a tree on each host: enters every host once. For small payloads.
// Paper: Karonis et al., Exploiting Hierarchy in Parallel Computer Networks ..., IPDPS 2000.
//
// Ranks 0 and 1 on one host, 2 and 3 on another, root 1:
//   rank 0              rank 1                                rank 2              rank 3
//   0: idle             send in[0]->2  copy in[0] to out[0]   recv out[0]<-1      idle
//   1: recv out[0]<-1   send out[0]->0                        send out[0]->3      recv out[0]<-2
Schedule broadcast_leaders_binomial(int rank, const Hosts& hosts, int root) {
  Schedule s(/*chunks=*/1);
  const int host = hosts.host(rank), home = hosts.host(root);
  const auto local = hosts.ranks(host);
  std::vector<int> leaders = Shards(hosts, 1).rail(0);
  leaders[static_cast<size_t>(home)] = root;
  const int leader = leaders[static_cast<size_t>(host)];

  std::vector<SubSchedule> parts;
  if (rank == leader)
    parts.push_back({.schedule = broadcast_binomial(host, hosts.count(), home),
                     .members = leaders,
                     .in = in(0),
                     .out = out(0)});
  append_parts(s, parts, tree_rounds(hosts.count()));
  const SubSchedule on_host{
      .schedule = broadcast_binomial(hosts.place(rank), static_cast<int>(local.size()),
                                     hosts.place(leader)),
      .members = {local.begin(), local.end()},
      .in = out(0),
      .out = out(0)};
  append_parts(s, {&on_host, 1}, tree_rounds(hosts.most()));
  return s;
}

// Slices pipeline along the rails, so that all hosts send and receive at once: for many slices.
Schedule broadcast_rails_chain(int rank, const Hosts& hosts, int root) {
  return over_rails(rank, hosts, root, broadcast_chain, static_cast<size_t>(hosts.count()));
}

// Scatters and gathers every shard along its rail: for payloads of few slices.
Schedule broadcast_rails_scatter_allgather(int rank, const Hosts& hosts, int root) {
  return over_rails(rank, hosts, root, broadcast_scatter_allgather,
                    tree_rounds(hosts.count()) + static_cast<size_t>(hosts.count()));
}

}  // namespace hccl_like
