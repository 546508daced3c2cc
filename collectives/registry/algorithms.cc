#include "collectives/registry/algorithms.h"

#include <algorithm>
#include <bit>

#include "collectives/algorithms/all.h"

namespace hccl_like {

namespace {

template <Schedule (*function)(int, int)>
Schedule rootless(int rank, const Hosts& hosts, int) {
  return function(rank, hosts.size());
}
template <Schedule (*function)(int, int, int)>
Schedule rooted(int rank, const Hosts& hosts, int root) {
  return function(rank, hosts.size(), root);
}
template <Schedule (*function)(int, const Hosts&)>
Schedule over(int rank, const Hosts& hosts, int) {
  return function(rank, hosts);
}

Schedule send_schedule(int, const Hosts&, int peer) { return send_to(peer); }
Schedule recv_schedule(int, const Hosts&, int peer) { return recv_from(peer); }

bool any(const Hosts&) { return true; }
// More peers mean more messages in flight than links have buffers.
bool few(const Hosts& hosts) { return hosts.size() <= 64; }
bool power_of_two(const Hosts& hosts) {
  return std::has_single_bit(static_cast<unsigned>(hosts.size()));
}
bool nested(const Hosts& hosts) { return hosts.nested(); }

using enum Collective;

constexpr Algorithm kAlgorithms[] = {
    {kAllReduce, "one_shot", rootless<allreduce_one_shot>, any, cost_allreduce_one_shot,
     /*equal_chunks=*/false, /*sums_at_once=*/true},
    {kAllReduce, "direct", rootless<allreduce_direct>, any, cost_allreduce_direct,
     /*equal_chunks=*/false, /*sums_at_once=*/true},
    {kAllReduce, "recursive_doubling", rootless<allreduce_recursive_doubling>, any,
     cost_allreduce_recursive_doubling},
    {kAllReduce, "rabenseifner", rootless<allreduce_rabenseifner>, any,
     cost_allreduce_rabenseifner},
    {kAllReduce, "ring", rootless<allreduce_ring>, any, cost_allreduce_ring},
    {kAllReduce, "leaders_one_shot", over<allreduce_leaders_one_shot>, nested,
     cost_allreduce_leaders_one_shot},
    {kAllReduce, "leaders_doubling", over<allreduce_leaders_doubling>, nested,
     cost_allreduce_leaders_doubling},
    {kAllReduce, "rails_direct", over<allreduce_rails_direct>, nested, cost_allreduce_rails_direct},
    {kAllReduce, "rails_rabenseifner", over<allreduce_rails_rabenseifner>, nested,
     cost_allreduce_rails_rabenseifner},
    {kAllReduce, "rails_ring", over<allreduce_rails_ring>, nested, cost_allreduce_rails_ring},

    {kReduceScatter, "direct", rootless<reduce_scatter_direct>, any, cost_reduce_scatter_direct,
     /*equal_chunks=*/false, /*sums_at_once=*/true},
    {kReduceScatter, "recursive_halving", rootless<reduce_scatter_recursive_halving>, power_of_two,
     cost_reduce_scatter_recursive_halving},
    {kReduceScatter, "ring", rootless<reduce_scatter_ring>, any, cost_reduce_scatter_ring},
    {kReduceScatter, "leaders_direct", over<reduce_scatter_leaders_direct>, nested,
     cost_reduce_scatter_leaders_direct},
    {kReduceScatter, "rails_direct", over<reduce_scatter_rails_direct>, nested,
     cost_reduce_scatter_rails_direct},
    {kReduceScatter, "rails_ring", over<reduce_scatter_rails_ring>, nested,
     cost_reduce_scatter_rails_ring},

    {kAllGather, "direct", rootless<allgather_direct>, any, cost_allgather_direct},
    {kAllGather, "bruck", rootless<allgather_bruck>, any, cost_allgather_bruck},
    {kAllGather, "ring", rootless<allgather_ring>, any, cost_allgather_ring},
    {kAllGather, "leaders_bruck", over<allgather_leaders_bruck>, nested,
     cost_allgather_leaders_bruck},
    {kAllGather, "rails_direct", over<allgather_rails_direct>, nested, cost_allgather_rails_direct},
    {kAllGather, "rails_ring", over<allgather_rails_ring>, nested, cost_allgather_rails_ring},

    {kBroadcast, "binomial", rooted<broadcast_binomial>, any, cost_broadcast_binomial},
    {kBroadcast, "scatter_allgather", rooted<broadcast_scatter_allgather>, any,
     cost_broadcast_scatter_allgather},
    {kBroadcast, "chain", rooted<broadcast_chain>, any, cost_broadcast_chain},
    {kBroadcast, "leaders_binomial", broadcast_leaders_binomial, nested,
     cost_broadcast_leaders_binomial},
    {kBroadcast, "rails_chain", broadcast_rails_chain, nested, cost_broadcast_rails_chain},
    {kBroadcast, "rails_scatter_allgather", broadcast_rails_scatter_allgather, nested,
     cost_broadcast_rails_scatter_allgather},

    {kReduce, "binomial", rooted<reduce_binomial>, any, cost_reduce_binomial},
    {kReduce, "direct", rooted<reduce_direct>, any, cost_reduce_direct,
     /*equal_chunks=*/false, /*sums_at_once=*/true},
    {kReduce, "chain", rooted<reduce_chain>, any, cost_reduce_chain},
    {kReduce, "leaders_binomial", reduce_leaders_binomial, nested, cost_reduce_leaders_binomial},
    {kReduce, "rails_chain", reduce_rails_chain, nested, cost_reduce_rails_chain},

    {kGather, "direct", rooted<gather_direct>, any, cost_gather_direct},

    {kScatter, "direct", rooted<scatter_direct>, any, cost_scatter_direct},

    {kAllToAll, "direct", rootless<alltoall_direct>, few, cost_alltoall_direct},
    {kAllToAll, "pairwise", rootless<alltoall_pairwise>, any, cost_alltoall_pairwise},
    {kAllToAll, "bruck", rootless<alltoall_bruck>, any, cost_alltoall_bruck, /*equal_chunks=*/true},
    {kAllToAll, "rails", over<alltoall_rails>, nested, cost_alltoall_rails, /*equal_chunks=*/true},

    {kBarrier, "dissemination", rootless<barrier_dissemination>, any, cost_barrier_dissemination},
    {kBarrier, "leaders", over<barrier_leaders>, nested, cost_barrier_leaders},

    {kSend, "direct", send_schedule, any, cost_message},

    {kRecv, "direct", recv_schedule, any, cost_message},
};

}  // namespace

Schedule schedule_of(const Algorithm& algorithm, int rank, const Hosts& hosts, int root) {
  if (algorithm.own == nullptr) return algorithm.make(rank, hosts, root);
  const auto& by_root = algorithm.own->by_root;
  return by_root[by_root.size() > 1 ? static_cast<size_t>(root) : 0][static_cast<size_t>(rank)];
}

uint64_t key_of(const Algorithm& algorithm) {
  if (algorithm.own != nullptr) return algorithm.own->digest;
  return static_cast<uint64_t>(&algorithm - algorithms(algorithm.collective).data());
}

bool fits(const Algorithm& algorithm, const Hosts& hosts) {
  return algorithm.own == nullptr ? algorithm.fits(hosts) : algorithm.own->hosts == hosts;
}

Cost cost_of(const Algorithm& algorithm, const Crossings& crossings, uint64_t bytes) {
  if (crossings.ranks > 1 && algorithm.own != nullptr) {
    Cost cost = algorithm.own->chunk_cost;
    const uint64_t chunks = algorithm.own->by_root[0][0].chunks();
    const uint64_t chunk = (bytes + chunks - 1) / chunks;
    for (Load* load :
         {&cost.path, &cost.wire, &cost.busiest, &cost.far_busiest, &cost.wire_busiest})
      load->bytes *= chunk, load->reduced *= chunk;
    return cost;
  }
  if (crossings.ranks > 1) return algorithm.cost(crossings, bytes);
  const Load copied{.reduced = bytes};
  return {.path = copied, .busiest = copied};
}

std::span<const Algorithm> algorithms(Collective collective) {
  return {std::ranges::lower_bound(kAlgorithms, collective, {}, &Algorithm::collective),
          std::ranges::upper_bound(kAlgorithms, collective, {}, &Algorithm::collective)};
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  const auto all = algorithms(collective);
  const auto found = std::ranges::find(all, name, &Algorithm::name);
  return found == all.end() ? nullptr : &*found;
}

}  // namespace hccl_like
