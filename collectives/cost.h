#pragma once
// What an algorithm costs, in closed form: a handful of numbers that grow with ranks and bytes, times what a topology
// says each of them takes. simulate.h finds the same times by running the schedules.
#include <cstdint>

#include "collectives/topology.h"

namespace hccl_like {

// Messages and bytes through a rank's port (in or out, whichever is more), and bytes it adds up or copies.
struct Load {
  uint64_t messages = 0;
  uint64_t bytes = 0;
  uint64_t reduced = 0;

  friend bool operator==(const Load&, const Load&) = default;
};

// One lap of an algorithm.
struct Cost {
  uint64_t rounds = 0;    // messages that wait for each other: each costs a latency
  Load path;              // what adds up on the way from the first to the last of them
  Load busiest;           // all that the busiest rank does: laps can follow each other no faster
  uint64_t resident = 0;  // rounds from a rank's first to its last
  bool neighbours =
      false;  // ranks talk to the next rank only, so each host has one message out and one in

  friend bool operator==(const Cost&, const Cost&) = default;
};

// The time of `laps` laps of cost `lap`, `window` of them under way at once. `topology` comes from with_sharing().
uint64_t estimate_ps(const Cost& lap, uint64_t laps, uint64_t window, const Topology& topology);

// One function for each algorithm: `size` >= 2 ranks, `bytes` in all chunks together.
Cost cost_allreduce_one_shot(uint64_t size, uint64_t bytes);
Cost cost_allreduce_direct(uint64_t size, uint64_t bytes);
Cost cost_allreduce_recursive_doubling(uint64_t size, uint64_t bytes);
Cost cost_allreduce_rabenseifner(uint64_t size, uint64_t bytes);
Cost cost_allreduce_ring(uint64_t size, uint64_t bytes);
Cost cost_reduce_scatter_direct(uint64_t size, uint64_t bytes);
Cost cost_reduce_scatter_recursive_halving(uint64_t size, uint64_t bytes);
Cost cost_reduce_scatter_ring(uint64_t size, uint64_t bytes);
Cost cost_allgather_direct(uint64_t size, uint64_t bytes);
Cost cost_allgather_bruck(uint64_t size, uint64_t bytes);
Cost cost_allgather_ring(uint64_t size, uint64_t bytes);
Cost cost_broadcast_binomial(uint64_t size, uint64_t bytes);
Cost cost_broadcast_scatter_allgather(uint64_t size, uint64_t bytes);
Cost cost_broadcast_chain(uint64_t size, uint64_t bytes);
Cost cost_reduce_binomial(uint64_t size, uint64_t bytes);
Cost cost_reduce_direct(uint64_t size, uint64_t bytes);
Cost cost_reduce_chain(uint64_t size, uint64_t bytes);
Cost cost_linear(uint64_t size, uint64_t bytes);  // gather, direct all-to-all
Cost cost_scatter_direct(uint64_t size, uint64_t bytes);
Cost cost_alltoall_pairwise(uint64_t size, uint64_t bytes);
Cost cost_alltoall_bruck(uint64_t size, uint64_t bytes);
Cost cost_barrier_dissemination(uint64_t size, uint64_t bytes);
Cost cost_message(uint64_t size, uint64_t bytes);  // send, recv

}  // namespace hccl_like
