#pragma once
// Proves jobs of so many ranks that their schedules do not fit into memory together.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "collectives/topology/topology.h"
#include "tests/proof/large_job.h"

namespace hccl_like {

struct LargeOptions {
  size_t memory = size_t{1} << 29;   // for steps
  std::optional<Topology> topology;  // runs the job on the clock, too
  uint64_t chunk_bytes = 0;          // on the clock
};

struct LargeProof {
  std::string fault;  // "" if the job is right
  uint64_t steps = 0;
  uint64_t messages = 0;
  uint64_t chunks = 0;       // moved or added up, by all ranks
  uint64_t passes = 0;       // how often each schedule was made
  uint64_t makespan_ps = 0;  // end of the last rank, see RoundClock; 0 if a round did not fit
};

// The same as check() and prove() with separate memory and in place, but exact: a memory cell holds
// the set of the ranks that contribute to it, or the one input that it is a copy of, and no number
// that stands for them. In sums a chunk contributes to chunks of its own number alone, which check
// sees to, so that a set of ranks says all. In place the values are those in separate memory if no
// rank reads in(c) after the round that wrote out(c), which is what is proved.
//
// All ranks run round by round. Schedules are made anew for every `memory` bytes of steps, and only
// the steps of a few rounds, or of one round and a part of its receivers, are kept. That is right
// since a round writes nothing that it reads, which is checked first. Beside `memory`, 4 bytes for
// each chunk of the output and each scratch slot of all ranks, and 8 for each message of a round.
// Fastest if sums are of ranks whose places follow each other, but right for any numbering.
LargeProof prove_large(const LargeJob& job, const LargeOptions& options = {});

}  // namespace hccl_like
