#pragma once
// Closed-form costs of algorithms: counts that depend on ranks and bytes, times a topology's unit
// costs. simulate.h derives the same times from the schedules.
#include <cstdint>

#include "collectives/topology/crossings.h"
#include "collectives/topology/topology.h"

namespace hccl_like {

// Messages and bytes through a port (the larger of in and out), and bytes summed or copied.
struct Load {
  uint64_t messages = 0;
  uint64_t bytes = 0;
  uint64_t reduced = 0;

  friend bool operator==(const Load&, const Load&) = default;
};

// The cost of one slice. "Near": within a host; "far": between hosts.
struct Cost {
  // Messages that wait for each other; each costs one latency.
  uint64_t rounds = 0, far_rounds = 0;
  // The load on the critical path: on ranks' ports, and on hosts' uplinks.
  Load path, wire;
  // The load of the busiest rank (near, far) and of the busiest uplink: limits the rate of slices.
  Load busiest, far_busiest, wire_busiest;
  // Rounds from a rank's first to its last.
  uint64_t resident = 0;

  friend bool operator==(const Cost&, const Cost&) = default;
};

// Picoseconds for `slices` slices, `window` at once. `topology` comes from with_sharing().
uint64_t estimate_ps(const Cost& slice, uint64_t slices, uint64_t window, const Topology& topology);

// One function for each algorithm: at least two ranks, `bytes` in all chunks together.
Cost cost_allreduce_one_shot(const Crossings& x, uint64_t bytes);
Cost cost_allreduce_direct(const Crossings& x, uint64_t bytes);
Cost cost_allreduce_recursive_doubling(const Crossings& x, uint64_t bytes);
Cost cost_allreduce_rabenseifner(const Crossings& x, uint64_t bytes);
Cost cost_allreduce_ring(const Crossings& x, uint64_t bytes);
Cost cost_reduce_scatter_direct(const Crossings& x, uint64_t bytes);
Cost cost_reduce_scatter_recursive_halving(const Crossings& x, uint64_t bytes);
Cost cost_reduce_scatter_ring(const Crossings& x, uint64_t bytes);
Cost cost_allgather_direct(const Crossings& x, uint64_t bytes);
Cost cost_allgather_bruck(const Crossings& x, uint64_t bytes);
Cost cost_allgather_ring(const Crossings& x, uint64_t bytes);
Cost cost_broadcast_binomial(const Crossings& x, uint64_t bytes);
Cost cost_broadcast_scatter_allgather(const Crossings& x, uint64_t bytes);
Cost cost_broadcast_chain(const Crossings& x, uint64_t bytes);
Cost cost_reduce_binomial(const Crossings& x, uint64_t bytes);
Cost cost_reduce_direct(const Crossings& x, uint64_t bytes);
Cost cost_reduce_chain(const Crossings& x, uint64_t bytes);
Cost cost_gather_direct(const Crossings& x, uint64_t bytes);
Cost cost_scatter_direct(const Crossings& x, uint64_t bytes);
Cost cost_alltoall_direct(const Crossings& x, uint64_t bytes);
Cost cost_alltoall_pairwise(const Crossings& x, uint64_t bytes);
Cost cost_alltoall_bruck(const Crossings& x, uint64_t bytes);
Cost cost_barrier_dissemination(const Crossings& x, uint64_t bytes);
Cost cost_message(const Crossings& x, uint64_t bytes);  // send, recv

// Algorithms for several hosts (cost_hosts.cc).
Cost cost_allreduce_leaders_one_shot(const Crossings& x, uint64_t bytes);
Cost cost_allreduce_leaders_doubling(const Crossings& x, uint64_t bytes);
Cost cost_allreduce_rails_direct(const Crossings& x, uint64_t bytes);
Cost cost_allreduce_rails_rabenseifner(const Crossings& x, uint64_t bytes);
Cost cost_allreduce_rails_ring(const Crossings& x, uint64_t bytes);
Cost cost_reduce_scatter_leaders_direct(const Crossings& x, uint64_t bytes);
Cost cost_reduce_scatter_rails_direct(const Crossings& x, uint64_t bytes);
Cost cost_reduce_scatter_rails_ring(const Crossings& x, uint64_t bytes);
Cost cost_allgather_leaders_bruck(const Crossings& x, uint64_t bytes);
Cost cost_allgather_rails_direct(const Crossings& x, uint64_t bytes);
Cost cost_allgather_rails_ring(const Crossings& x, uint64_t bytes);
Cost cost_broadcast_leaders_binomial(const Crossings& x, uint64_t bytes);
Cost cost_broadcast_rails_chain(const Crossings& x, uint64_t bytes);
Cost cost_broadcast_rails_scatter_allgather(const Crossings& x, uint64_t bytes);
Cost cost_reduce_leaders_binomial(const Crossings& x, uint64_t bytes);
Cost cost_reduce_rails_chain(const Crossings& x, uint64_t bytes);
Cost cost_alltoall_rails(const Crossings& x, uint64_t bytes);
Cost cost_barrier_leaders(const Crossings& x, uint64_t bytes);

}  // namespace hccl_like
