#pragma once
// Simulates a job on a virtual clock, message by message.
//
// Model: LogGP (Alexandrov, Ionescu, Schauser, Scheiman, SPAA 1995). Each rank has a port out and a
// port in; the ranks of a host share its uplink and downlink. A message occupies its sender's port,
// travels, and occupies its receiver's port. Sums and copies occupy the port in, because the
// receiving thread also adds. Slices overlap as in the engine.
#include <cstdint>
#include <vector>

#include "collectives/topology/topology.h"
#include "collectives/verify/job.h"

namespace hccl_like {

struct SimulateOptions {
  uint64_t bytes = 0;          // all chunks together
  uint64_t element_bytes = 4;  // granularity of chunks and slices
  uint32_t slices = 1;
  uint32_t window = 4;  // slices that a rank runs at once
};

struct Simulation {
  uint64_t makespan_ps = 0;           // end of the last rank
  std::vector<uint64_t> finished_ps;  // by rank
  uint64_t messages = 0;
  uint64_t bytes = 0;  // sent by all ranks
};

// The job must have passed check(). Deterministic. Takes about 1 us of real time for each message.
Simulation simulate(const Job& job, const Topology& topology, const SimulateOptions& options);

}  // namespace hccl_like
