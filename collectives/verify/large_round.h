#pragma once
// One round of all ranks of a large job: what prove_large() runs and RoundClock times.
#include <cstdint>
#include <vector>

#include "collectives/schedule/schedule.h"

namespace hccl_like {

// A step, with the numbers of its memory cells.
struct PackedStep {
  uint32_t peer;
  uint32_t kind : 3;
  uint32_t count : 29;  // kReduce: of sources
  uint32_t a;           // kReduce: first in the round's list of sources
  uint32_t dst;
  uint32_t sizes;  // of the message's chunks: equal numbers for equal lists of sizes

  Step::Kind what() const { return static_cast<Step::Kind>(kind); }

  // When a message reaches its receiver: in place of the cells of a send that has been run.
  void set_arrival_ps(uint64_t at) {
    a = static_cast<uint32_t>(at >> 32), dst = static_cast<uint32_t>(at);
  }
  uint64_t arrival_ps() const { return uint64_t{a} << 32 | dst; }
};

struct LargeRound {
  std::vector<PackedStep> steps;
  std::vector<uint32_t> sources;
  std::vector<uint32_t> begin;  // by rank, then the end
};

// A message on its way.
struct Arrival {
  uint32_t step;  // of the round: the send
  uint32_t sender : 31;
  uint32_t adds : 1;  // its receiver adds it up
};

}  // namespace hccl_like
