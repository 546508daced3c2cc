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
  bool record = false;  // fills Simulation::uses
};

// A transfer or an addition that occupied a port of a rank, from begin to end.
struct PortUse {
  uint32_t rank = 0;
  bool out = false;   // the port out; else the port in, which sums and copies occupy, too
  uint32_t step = 0;  // of the rank's schedule
  uint32_t slice = 0;
  uint64_t begin_ps = 0, end_ps = 0;
};

struct Simulation {
  uint64_t makespan_ps = 0;           // end of the last rank
  std::vector<uint64_t> finished_ps;  // by rank
  uint64_t messages = 0;
  uint64_t bytes = 0;  // sent by all ranks
  std::vector<PortUse> uses;
};

// The job must have passed check(). Deterministic. Takes about 1 us of real time for each message.
Simulation simulate(const Job& job, const Topology& topology, const SimulateOptions& options);

}  // namespace hccl_like
