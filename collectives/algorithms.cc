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
// With more peers a rank would have more messages on the way at once than links have buffers.
bool few(int size) { return size <= 64; }
bool power_of_two(int size) { return std::has_single_bit(static_cast<unsigned>(size)); }

using enum Collective;

// One block per collective, in the order of the enumeration.
constexpr Algorithm kAlgorithms[] = {
    {kAllReduce, "one_shot", rootless<allreduce_one_shot>, any, cost_allreduce_one_shot},
    {kAllReduce, "direct", rootless<allreduce_direct>, any, cost_allreduce_direct},
    {kAllReduce, "recursive_doubling", rootless<allreduce_recursive_doubling>, any,
     cost_allreduce_recursive_doubling},
    {kAllReduce, "rabenseifner", rootless<allreduce_rabenseifner>, any,
     cost_allreduce_rabenseifner},
    {kAllReduce, "ring", rootless<allreduce_ring>, any, cost_allreduce_ring},

    {kReduceScatter, "direct", rootless<reduce_scatter_direct>, any, cost_reduce_scatter_direct},
    {kReduceScatter, "recursive_halving", rootless<reduce_scatter_recursive_halving>, power_of_two,
     cost_reduce_scatter_recursive_halving},
    {kReduceScatter, "ring", rootless<reduce_scatter_ring>, any, cost_reduce_scatter_ring},

    {kAllGather, "direct", rootless<allgather_direct>, any, cost_allgather_direct},
    {kAllGather, "bruck", rootless<allgather_bruck>, any, cost_allgather_bruck},
    {kAllGather, "ring", rootless<allgather_ring>, any, cost_allgather_ring},

    {kBroadcast, "binomial", broadcast_binomial, any, cost_broadcast_binomial},
    {kBroadcast, "scatter_allgather", broadcast_scatter_allgather, any,
     cost_broadcast_scatter_allgather},
    {kBroadcast, "chain", broadcast_chain, any, cost_broadcast_chain},

    {kReduce, "binomial", reduce_binomial, any, cost_reduce_binomial},
    {kReduce, "direct", reduce_direct, any, cost_reduce_direct},
    {kReduce, "chain", reduce_chain, any, cost_reduce_chain},

    {kGather, "direct", gather_direct, any, cost_linear},

    {kScatter, "direct", scatter_direct, any, cost_scatter_direct},

    {kAllToAll, "direct", rootless<alltoall_direct>, few, cost_linear},
    {kAllToAll, "pairwise", rootless<alltoall_pairwise>, any, cost_alltoall_pairwise},
    {kAllToAll, "bruck", rootless<alltoall_bruck>, any, cost_alltoall_bruck, /*equal_chunks=*/true},

    {kBarrier, "dissemination", rootless<barrier_dissemination>, any, cost_barrier_dissemination},

    {kSend, "direct", send_schedule, any, cost_message},

    {kRecv, "direct", recv_schedule, any, cost_message},
};

}  // namespace

bool cuts_payload(Collective collective) {
  return collective == kAllReduce || collective == kReduce || collective == kBroadcast ||
         collective == kSend || collective == kRecv;
}

std::string_view name(Collective collective) {
  static constexpr std::array<std::string_view, kCollectives> kNames = {
      "allreduce", "reduce_scatter", "allgather", "broadcast", "reduce", "gather",
      "scatter",   "alltoall",       "barrier",   "send",      "recv",
  };
  return kNames[static_cast<size_t>(collective)];
}

Cost cost_of(const Algorithm& algorithm, int size, uint64_t bytes) {
  if (size > 1) return algorithm.cost(static_cast<uint64_t>(size), bytes);
  const Load copied{.reduced = bytes};
  return {.path = copied, .busiest = copied};
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
