#include <bit>

#include "collectives/algorithms/all.h"
#include "collectives/algorithms/parts.h"

namespace hccl_like {

namespace {

// Sums each shard on its host, runs an allreduce along the shard's rail, and shares the results.
Schedule over_hosts(int rank, const Hosts& hosts, int count, Schedule (*along_rail)(int, int),
                    size_t rail_rounds) {
  const int host = hosts.host(rank);
  const Schedule rail = along_rail(host, hosts.count());
  const auto chunks = static_cast<int>(rail.chunks());  // of a shard
  const Shards shards(hosts, count);
  const bool alone = hosts.on(host) == 1;

  Schedule s(static_cast<uint32_t>(count * chunks));
  append_sums_on_host(s, hosts, shards, chunks, rank, out(shards.begin(rank) * chunks));
  std::vector<SubSchedule> parts;
  for (int shard = shards.begin(rank); shard < shards.end(rank); ++shard) {
    const int first = shard * chunks;
    parts.push_back({.schedule = rail,
                     .members = shards.rail(shard),
                     .first_chunk = first,
                     .in = alone ? in(first) : out(first),
                     .out = out(first)});
  }
  append_parts(s, parts, rail_rounds);
  append_gather_on_host(s, hosts, shards, chunks, rank);
  return s;
}

size_t exchanges(const Hosts& hosts) {
  return static_cast<size_t>(std::bit_width(static_cast<unsigned>(hosts.count()))) - 1;
}

}  // namespace

// Data leaves a host once: the ranks of a host sum one shard each, run a flat allreduce along the
// rail (the owners of the shard on all hosts), then share the results. With one shard, each host
// has one leader: for small payloads.
// Paper: Cho et al., BlueConnect: Decomposing All-Reduce for Deep Learning ..., MLSys 2019.
// Order of summation: the ranks of a host in rank order with one rounding for 8- and 16-bit floats,
// then the hosts in the order of the rail's algorithm.
//
// Ranks 0 and 1 on one host, 2 and 3 on another, `rails_direct`, rank 0:
//   0: send in[2..3]->1  recv_reduce in[0..1]+<-1 to out[0..1]
//   1: send out[1]->2  recv_reduce out[0]+<-2 to out[0]
//   2: send out[0]->2  recv out[1]<-2
//   3: send out[0..1]->1  recv out[2..3]<-1
Schedule allreduce_leaders_one_shot(int rank, const Hosts& hosts) {
  return over_hosts(rank, hosts, 1, allreduce_one_shot, 2);
}

Schedule allreduce_leaders_doubling(int rank, const Hosts& hosts) {
  return over_hosts(
      rank, hosts, 1, allreduce_recursive_doubling,
      exchanges(hosts) + (std::has_single_bit(static_cast<unsigned>(hosts.count())) ? 1 : 3));
}

Schedule allreduce_rails_direct(int rank, const Hosts& hosts) {
  return over_hosts(rank, hosts, hosts.most(), allreduce_direct, hosts.count() == 2 ? 2 : 3);
}

Schedule allreduce_rails_rabenseifner(int rank, const Hosts& hosts) {
  return over_hosts(rank, hosts, hosts.most(), allreduce_rabenseifner, 2 * exchanges(hosts) + 2);
}

Schedule allreduce_rails_ring(int rank, const Hosts& hosts) {
  return over_hosts(rank, hosts, hosts.most(), allreduce_ring,
                    2 * static_cast<size_t>(hosts.count() - 1));
}

}  // namespace hccl_like
