#pragma once
// How long a job takes: all ranks run on a virtual clock, message by message.
//
// The model is LogGP (Alexandrov, Ionescu, Schauser, Scheiman, SPAA 1995) with a port out and a
// port in for each rank, and for each host a way out and a way in that its ranks share. A message
// occupies its sender's port, travels, and occupies its receiver's port, and so do sums and copies,
// as the thread that takes messages in also adds them up. Laps overlap as in the engine.
#include <cstdint>
#include <vector>

#include "collectives/topology/topology.h"
#include "collectives/verify/job.h"

namespace hccl_like {

struct SimulateOptions {
  uint64_t bytes = 0;          // of all chunks together
  uint64_t element_bytes = 4;  // chunks and laps are cut at elements
  uint32_t laps = 1;
  uint32_t window = 4;  // laps that a rank has under way at once
};

struct Simulation {
  uint64_t makespan_ps = 0;           // when the last rank is done
  std::vector<uint64_t> finished_ps;  // by rank
  uint64_t messages = 0;
  uint64_t bytes = 0;  // sent by all ranks together
};

// The job must have passed check(). Deterministic; takes about a microsecond of real time a
// message.
Simulation simulate(const Job& job, const Topology& topology, const SimulateOptions& options);

}  // namespace hccl_like
