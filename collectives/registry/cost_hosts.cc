// Costs of the algorithms for several hosts: phases on each host and between hosts.
#include <algorithm>
#include <bit>

#include "collectives/registry/cost.h"

namespace hccl_like {

namespace {

uint64_t hosts_chunk_of(uint64_t bytes, uint64_t size) { return (bytes + size - 1) / size; }
uint64_t levels(uint64_t ranks) { return static_cast<uint64_t>(std::bit_width(ranks - 1)); }

void add(Load& to, const Load& load, uint64_t times = 1) {
  to.messages += times * load.messages;
  to.bytes += times * load.bytes;
  to.reduced += times * load.reduced;
}

// A phase on each host; `load` is that of the busiest rank.
Cost on_host(const Load& load, uint64_t rounds = 1) {
  return {.rounds = rounds, .path = load, .busiest = load, .resident = rounds};
}

// The cost of a flat algorithm between hosts, if `rails` ranks of each host run it at once.
Cost between(Cost cost, uint64_t rails) {
  Cost result = cost;
  result.wire = result.wire_busiest = {};
  add(result.wire, cost.wire, rails);
  add(result.wire_busiest, cost.wire_busiest, rails);
  return result;
}

// A message is a run of consecutive chunks: it splits if the ranks of a host are not consecutive.
Cost in_runs(Cost cost, const Crossings& x) {
  const uint64_t runs = hosts_chunk_of(x.hops, x.hosts);
  for (Load* load : {&cost.wire, &cost.far_busiest, &cost.wire_busiest}) load->messages *= runs;
  return cost;
}

// The same for a chain: shards pipeline, so only the first hop waits for all of them.
Cost along_chain(Cost cost, uint64_t hops, uint64_t rails) {
  Cost result = between(cost, rails);
  result.wire = cost.wire;
  result.wire.messages += rails - 1;
  result.wire.bytes += (rails - 1) * (cost.wire.bytes / hops);
  return result;
}

// Sequential composition.
Cost then(const Cost& a, const Cost& b) {
  Cost result = a;
  result.rounds += b.rounds, result.far_rounds += b.far_rounds;
  add(result.path, b.path), add(result.wire, b.wire);
  add(result.busiest, b.busiest);
  add(result.far_busiest, b.far_busiest), add(result.wire_busiest, b.wire_busiest);
  result.resident += b.resident;
  return result;
}

// Each rank of a host sums one shard, or the leader sums all. The way back has no sums.
Load sums(const Crossings& x, uint64_t shards, uint64_t bytes) {
  const uint64_t others = x.most - 1, moved = others * hosts_chunk_of(bytes, shards);
  return {others, moved, moved};
}

Load given_back(const Crossings& x, uint64_t shards, uint64_t bytes) {
  Load load = sums(x, shards, bytes);
  load.reduced = 0;
  return load;
}

using CostFunction = Cost (*)(const Crossings&, uint64_t);

Cost allreduce(const Crossings& x, uint64_t bytes, uint64_t shards, CostFunction along_rail) {
  const Cost rail = along_rail(Crossings::apart(x.hosts), hosts_chunk_of(bytes, shards));
  return then(then(on_host(sums(x, shards, bytes)), between(rail, shards)),
              on_host(given_back(x, shards, bytes)));
}

// Every rank has or receives all chunks in one-chunk messages within its host.
Load chunks_on_host(const Crossings& x, uint64_t bytes) {
  const uint64_t messages = x.ranks * (x.most - 1) / x.most;
  return {messages, messages * hosts_chunk_of(bytes, x.ranks), 0};
}

}  // namespace

Cost cost_allreduce_leaders_one_shot(const Crossings& x, uint64_t bytes) {
  return allreduce(x, bytes, 1, cost_allreduce_one_shot);
}

Cost cost_allreduce_leaders_doubling(const Crossings& x, uint64_t bytes) {
  return allreduce(x, bytes, 1, cost_allreduce_recursive_doubling);
}

Cost cost_allreduce_rails_direct(const Crossings& x, uint64_t bytes) {
  return allreduce(x, bytes, x.most, cost_allreduce_direct);
}

Cost cost_allreduce_rails_rabenseifner(const Crossings& x, uint64_t bytes) {
  return allreduce(x, bytes, x.most, cost_allreduce_rabenseifner);
}

Cost cost_allreduce_rails_ring(const Crossings& x, uint64_t bytes) {
  return allreduce(x, bytes, x.most, cost_allreduce_ring);
}

Cost cost_reduce_scatter_leaders_direct(const Crossings& x, uint64_t bytes) {
  const Cost middle = cost_reduce_scatter_direct(Crossings::apart(x.hosts), bytes);
  const uint64_t others = x.most - 1;
  return then(then(on_host(sums(x, 1, bytes)), middle),
              on_host({others, others * hosts_chunk_of(bytes, x.ranks), 0}));
}

Cost cost_reduce_scatter_rails_direct(const Crossings& x, uint64_t bytes) {
  Load load = chunks_on_host(x, bytes);
  load.reduced = load.bytes;
  const Cost rail = cost_reduce_scatter_direct(Crossings::apart(x.hosts),
                                               hosts_chunk_of(bytes, x.ranks) * x.hosts);
  return then(on_host(load), between(rail, x.most));
}

Cost cost_reduce_scatter_rails_ring(const Crossings& x, uint64_t bytes) {
  Load load = chunks_on_host(x, bytes);
  load.reduced = load.bytes;
  const Cost rail =
      cost_reduce_scatter_ring(Crossings::apart(x.hosts), hosts_chunk_of(bytes, x.ranks) * x.hosts);
  return then(on_host(load), between(rail, x.most));
}

Cost cost_allgather_leaders_bruck(const Crossings& x, uint64_t bytes) {
  const uint64_t others = x.most - 1;
  const Cost middle = in_runs(cost_allgather_bruck(Crossings::apart(x.hosts), bytes), x);
  return then(then(on_host({others, others * hosts_chunk_of(bytes, x.ranks), 0}), middle),
              on_host({others, others * bytes, 0}));
}

Cost cost_allgather_rails_direct(const Crossings& x, uint64_t bytes) {
  const Cost rail =
      cost_allgather_direct(Crossings::apart(x.hosts), hosts_chunk_of(bytes, x.ranks) * x.hosts);
  return then(between(rail, x.most), on_host(chunks_on_host(x, bytes)));
}

Cost cost_allgather_rails_ring(const Crossings& x, uint64_t bytes) {
  const Cost rail =
      cost_allgather_ring(Crossings::apart(x.hosts), hosts_chunk_of(bytes, x.ranks) * x.hosts);
  return then(between(rail, x.most), on_host(chunks_on_host(x, bytes)));
}

Cost cost_broadcast_leaders_binomial(const Crossings& x, uint64_t bytes) {
  const uint64_t on = levels(x.most);
  return then(cost_broadcast_binomial(Crossings::apart(x.hosts), bytes),
              on_host({on, on * bytes, 0}, on));
}

Cost cost_broadcast_rails_chain(const Crossings& x, uint64_t bytes) {
  const Cost on = on_host(given_back(x, x.most, bytes));
  const Cost rail = cost_broadcast_chain(Crossings::apart(x.hosts), hosts_chunk_of(bytes, x.most));
  Cost cost = then(then(on, along_chain(rail, x.hosts - 1, x.most)), on);
  cost.resident = 3;
  return cost;
}

Cost cost_broadcast_rails_scatter_allgather(const Crossings& x, uint64_t bytes) {
  const Cost on = on_host(given_back(x, x.most, bytes));
  const Cost rail =
      cost_broadcast_scatter_allgather(Crossings::apart(x.hosts), hosts_chunk_of(bytes, x.most));
  Cost cost = then(then(on, between(rail, x.most)), on);
  cost.resident = 3;
  return cost;
}

Cost cost_reduce_leaders_binomial(const Crossings& x, uint64_t bytes) {
  const uint64_t on = levels(x.most);
  return then(on_host({on, on * bytes, on * bytes}, on),
              cost_reduce_binomial(Crossings::apart(x.hosts), bytes));
}

Cost cost_reduce_rails_chain(const Crossings& x, uint64_t bytes) {
  const Cost rail = cost_reduce_chain(Crossings::apart(x.hosts), hosts_chunk_of(bytes, x.most));
  Cost cost = then(then(on_host(sums(x, x.most, bytes)), along_chain(rail, x.hosts - 1, x.most)),
                   on_host(given_back(x, x.most, bytes)));
  cost.resident = 3;
  return cost;
}

Cost cost_alltoall_rails(const Crossings& x, uint64_t bytes) {
  const uint64_t chunk = hosts_chunk_of(bytes, x.ranks), near = x.most - 1;
  const uint64_t handed_on = (x.ranks - x.most) * near / x.most;
  const Cost rail = cost_allgather_direct(Crossings::apart(x.hosts), chunk * x.most * x.hosts);
  return then(then(on_host({near, near * chunk, 0}, 0), in_runs(between(rail, x.most), x)),
              on_host({handed_on, handed_on * chunk, 0}));
}

Cost cost_barrier_leaders(const Crossings& x, uint64_t) {
  const Cost on = on_host({x.most - 1, 0, 0});
  return then(then(on, cost_barrier_dissemination(Crossings::apart(x.hosts), 0)), on);
}

}  // namespace hccl_like
