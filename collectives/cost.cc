#include "collectives/cost.h"

#include <algorithm>
#include <bit>

namespace hccl_like {

namespace {

uint64_t chunk_of(uint64_t bytes, uint64_t size) { return (bytes + size - 1) / size; }
uint64_t log2_floor(uint64_t size) { return static_cast<uint64_t>(std::bit_width(size)) - 1; }
uint64_t log2_ceil(uint64_t size) { return static_cast<uint64_t>(std::bit_width(size - 1)); }

// Where one rank does everything that is on the path.
Cost all_on_one_rank(uint64_t rounds, const Load& load) {
  return {.rounds = rounds, .path = load, .busiest = load, .resident = rounds};
}

Cost around_the_ring(uint64_t rounds, const Load& load) {
  Cost cost = all_on_one_rank(rounds, load);
  cost.neighbours = true;
  return cost;
}

// The exchanges between a power of two of ranks, and lending the inputs of the others before and returning the result
// after. Unless most ranks have a lender, no chain of waiting goes through both: a rank that was late for its first
// exchange finds the messages of the others there already.
uint64_t folded_rounds(uint64_t size, uint64_t exchanges) {
  const uint64_t core = std::bit_floor(size), extra = size - core;
  return exchanges + (extra > 0) + (2 * extra > core);
}

// A rank with a lender receives one message more and sends one more, but never both at a time.
Cost folded(uint64_t rounds, const Load& path, uint64_t fold, uint64_t bytes) {
  Cost cost = all_on_one_rank(rounds, path);
  cost.busiest.messages -= fold;
  cost.busiest.bytes -= fold * bytes;
  return cost;
}

// A link as the slowest rank sees it.
LinkCost slowest_link(const Cost& cost, const Topology& topology) {
  if (topology.hosts == 1) return topology.local;
  const auto ranks = static_cast<uint64_t>(topology.size());
  const auto per_host = static_cast<uint64_t>(topology.ranks_per_host);
  LinkCost remote = topology.remote;
  if (!cost.neighbours) {
    // A host's ranks share its way out; of what a rank sends to everybody, this part leaves the host.
    const uint64_t share = std::max<uint64_t>(1, per_host * (ranks - per_host) / (ranks - 1));
    remote.gap_ps *= share;
    remote.ps_per_kib *= share;
  }
  return {std::max(remote.latency_ps, topology.local.latency_ps),
          std::max(remote.gap_ps, topology.local.gap_ps),
          std::max(remote.ps_per_kib, topology.local.ps_per_kib)};
}

}  // namespace

uint64_t estimate_ps(const Cost& lap, uint64_t laps, uint64_t window, const Topology& topology) {
  const LinkCost link = slowest_link(lap, topology);
  auto port = [&](const Load& load) {
    return load.messages * link.gap_ps + byte_time_ps(load.bytes, link.ps_per_kib);
  };
  auto core = [&](const Load& load) {
    return byte_time_ps(load.reduced, topology.reduce_ps_per_kib);
  };
  const uint64_t one = lap.rounds * link.latency_ps + port(lap.path) + core(lap.path);
  if (laps == 1) return one;

  // A rank has `window` laps under way; each of them stays for a part of the whole path.
  const uint64_t stay = lap.rounds == 0 ? one : one / lap.rounds * lap.resident;
  const uint64_t waves = one + (laps > window ? (laps - window) * stay / window : 0);
  // Or the busiest rank is the limit: it works without a pause from when the first lap reaches it to when the last
  // leaves it. Its own waiting for messages is hidden behind the work for other laps.
  const uint64_t elsewhere = (lap.rounds - lap.resident) * link.latency_ps + port(lap.path) -
                             port(lap.busiest) + core(lap.path) - core(lap.busiest);
  const uint64_t work = port(lap.busiest) + core(lap.busiest);
  return std::max(waves, elsewhere + (lap.resident > 0) * link.latency_ps + laps * work);
}

Cost cost_allreduce_one_shot(uint64_t n, uint64_t bytes) {
  const uint64_t others = n - 1;
  return all_on_one_rank(1, {others, others * bytes, others * bytes});
}

Cost cost_allreduce_direct(uint64_t n, uint64_t bytes) {
  const uint64_t others = n - 1, moved = others * chunk_of(bytes, n);
  return all_on_one_rank(2, {2 * others, 2 * moved, moved});
}

Cost cost_allreduce_recursive_doubling(uint64_t n, uint64_t bytes) {
  const uint64_t exchanges = log2_floor(n), fold = !std::has_single_bit(n);
  const uint64_t messages = exchanges + 2 * fold;
  // After a single exchange the sum must still be copied to the output.
  const uint64_t copies = exchanges == 1;
  const Load path{messages, messages * bytes, (exchanges + fold + copies) * bytes};
  return folded(folded_rounds(n, exchanges), path, fold, bytes);
}

Cost cost_allreduce_rabenseifner(uint64_t n, uint64_t bytes) {
  const uint64_t core = std::bit_floor(n), fold = core != n;
  const uint64_t messages = 2 * log2_floor(n) + 2 * fold;
  const uint64_t halves = bytes - bytes / core;  // 1/2 + 1/4 + ... of the payload
  return folded(messages, {messages, 2 * halves + 2 * fold * bytes, halves + fold * bytes}, fold,
                bytes);
}

Cost cost_allreduce_ring(uint64_t n, uint64_t bytes) {
  const uint64_t others = n - 1, moved = others * chunk_of(bytes, n);
  return around_the_ring(2 * others, {2 * others, 2 * moved, moved});
}

Cost cost_reduce_scatter_direct(uint64_t n, uint64_t bytes) {
  const uint64_t others = n - 1, moved = others * chunk_of(bytes, n);
  return all_on_one_rank(1, {others, moved, moved});
}

Cost cost_reduce_scatter_recursive_halving(uint64_t n, uint64_t bytes) {
  const uint64_t rounds = log2_ceil(n), moved = (n - 1) * chunk_of(bytes, n);
  return all_on_one_rank(rounds, {rounds, moved, moved});
}

Cost cost_reduce_scatter_ring(uint64_t n, uint64_t bytes) {
  const uint64_t others = n - 1, moved = others * chunk_of(bytes, n);
  return around_the_ring(others, {others, moved, moved});
}

Cost cost_allgather_direct(uint64_t n, uint64_t bytes) { return cost_linear(n, bytes); }

Cost cost_allgather_bruck(uint64_t n, uint64_t bytes) {
  const uint64_t rounds = log2_ceil(n), moved = (n - 1) * chunk_of(bytes, n);
  // In every round but the first, the chunks of some ranks pass the end and are two messages.
  return all_on_one_rank(rounds, {rounds > 1 ? 2 * rounds - 1 : rounds, moved, chunk_of(bytes, n)});
}

Cost cost_allgather_ring(uint64_t n, uint64_t bytes) {
  const uint64_t others = n - 1, chunk = chunk_of(bytes, n);
  return around_the_ring(others, {others, others * chunk, chunk});
}

Cost cost_broadcast_binomial(uint64_t n, uint64_t bytes) {
  // The root sends to all its children one after the other, without waiting; no path has more hops than a number
  // below n has bits set.
  const uint64_t children = log2_ceil(n);
  return all_on_one_rank(log2_floor(n), {children, children * bytes, 0});
}

Cost cost_broadcast_scatter_allgather(uint64_t n, uint64_t bytes) {
  const uint64_t messages = log2_ceil(n) + n - 1;
  const Load load{messages, 2 * (n - 1) * chunk_of(bytes, n), 0};
  // Nobody waits for a rank that comes later in the ring: like a chain, laps follow each other closely.
  return {.rounds = n - 1, .path = load, .busiest = load, .resident = 1};
}

Cost cost_broadcast_chain(uint64_t n, uint64_t bytes) {
  const uint64_t hops = n - 1;
  return {.rounds = hops,
          .path = {hops, hops * bytes, 0},
          .busiest = {1, bytes, 0},
          .resident = 1,
          .neighbours = true};
}

Cost cost_reduce_binomial(uint64_t n, uint64_t bytes) {
  const uint64_t children = log2_ceil(n);
  return all_on_one_rank(log2_floor(n), {children, children * bytes, children * bytes});
}

Cost cost_reduce_direct(uint64_t n, uint64_t bytes) { return cost_allreduce_direct(n, bytes); }

Cost cost_reduce_chain(uint64_t n, uint64_t bytes) {
  const uint64_t hops = n - 1;
  return {.rounds = hops,
          .path = {hops, hops * bytes, hops * bytes},
          .busiest = {1, bytes, bytes},
          .resident = 1,
          .neighbours = true};
}

Cost cost_linear(uint64_t n, uint64_t bytes) {
  const uint64_t others = n - 1, chunk = chunk_of(bytes, n);
  return all_on_one_rank(1, {others, others * chunk, chunk});
}

Cost cost_scatter_direct(uint64_t n, uint64_t bytes) {
  const uint64_t others = n - 1;
  return all_on_one_rank(1, {others, others * chunk_of(bytes, n), 0});
}

Cost cost_alltoall_pairwise(uint64_t n, uint64_t bytes) {
  const uint64_t others = n - 1, chunk = chunk_of(bytes, n);
  return all_on_one_rank(others, {others, others * chunk, chunk});
}

Cost cost_alltoall_bruck(uint64_t n, uint64_t bytes) {
  const uint64_t rounds = log2_ceil(n), half = n / 2 * chunk_of(bytes, n);
  return all_on_one_rank(rounds, {rounds, rounds * half, rounds * half + bytes});
}

Cost cost_barrier_dissemination(uint64_t n, uint64_t) {
  const uint64_t rounds = log2_ceil(n);
  return all_on_one_rank(rounds, {rounds, 0, 0});
}

Cost cost_message(uint64_t, uint64_t bytes) { return all_on_one_rank(1, {1, bytes, 0}); }

}  // namespace hccl_like
