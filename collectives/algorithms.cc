#include "collectives/algorithms.h"

#include <algorithm>
#include <array>
#include <bit>

#include "collectives/algorithms/all.h"

namespace hccl_like {

namespace {

template <Schedule (*function)(int, int)>
Schedule rootless(int rank, int size, int) {
  return function(rank, size);
}

Schedule send_schedule(int, int, int peer) { return send_to(peer); }
Schedule recv_schedule(int, int, int peer) { return recv_from(peer); }

bool any(int) { return true; }
bool power_of_two(int size) { return std::has_single_bit(static_cast<unsigned>(size)); }

using enum Collective;

// One block per collective, in the order of the enumeration.
constexpr Algorithm kAlgorithms[] = {
    {kAllReduce, "one_shot", rootless<allreduce_one_shot>, any},
    {kAllReduce, "direct", rootless<allreduce_direct>, any},
    {kAllReduce, "recursive_doubling", rootless<allreduce_recursive_doubling>, any},
    {kAllReduce, "rabenseifner", rootless<allreduce_rabenseifner>, any},
    {kAllReduce, "ring", rootless<allreduce_ring>, any},

    {kReduceScatter, "direct", rootless<reduce_scatter_direct>, any},
    {kReduceScatter, "recursive_halving", rootless<reduce_scatter_recursive_halving>, power_of_two},
    {kReduceScatter, "ring", rootless<reduce_scatter_ring>, any},

    {kAllGather, "direct", rootless<allgather_direct>, any},
    {kAllGather, "bruck", rootless<allgather_bruck>, any},
    {kAllGather, "ring", rootless<allgather_ring>, any},

    {kBroadcast, "binomial", broadcast_binomial, any},
    {kBroadcast, "scatter_allgather", broadcast_scatter_allgather, any},
    {kBroadcast, "chain", broadcast_chain, any},

    {kReduce, "binomial", reduce_binomial, any},
    {kReduce, "direct", reduce_direct, any},
    {kReduce, "chain", reduce_chain, any},

    {kGather, "direct", gather_direct, any},

    {kScatter, "direct", scatter_direct, any},

    {kAllToAll, "direct", rootless<alltoall_direct>, any},
    {kAllToAll, "pairwise", rootless<alltoall_pairwise>, any},
    {kAllToAll, "bruck", rootless<alltoall_bruck>, any, /*equal_chunks=*/true},

    {kBarrier, "dissemination", rootless<barrier_dissemination>, any},

    {kSend, "direct", send_schedule, any},

    {kRecv, "direct", recv_schedule, any},
};

}  // namespace

std::string_view name(Collective collective) {
  static constexpr std::array<std::string_view, kCollectives> kNames = {
      "allreduce", "reduce_scatter", "allgather", "broadcast", "reduce", "gather",
      "scatter",   "alltoall",       "barrier",   "send",      "recv",
  };
  return kNames[static_cast<size_t>(collective)];
}

std::span<const Algorithm> algorithms(Collective collective) {
  const auto range = std::ranges::equal_range(kAlgorithms, collective, {}, &Algorithm::collective);
  return {range.begin(), range.end()};
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  const auto all = algorithms(collective);
  const auto found = std::ranges::find(all, name, &Algorithm::name);
  return found == all.end() ? nullptr : &*found;
}

}  // namespace hccl_like
