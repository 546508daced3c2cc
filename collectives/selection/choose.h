#pragma once
// Chooses the algorithm and number of slices of a call: the fastest by the cost model.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/registry/algorithms.h"
#include "collectives/topology/topology.h"

namespace hccl_like {

struct ChooseOptions {
  std::string_view forced;         // name of an algorithm; empty: the cost model decides
  const Algorithm* own = nullptr;  // a user's, which is a candidate and may be forced, too
  uint64_t slice_bytes = 1 << 20;  // larger payloads run in several slices
  uint32_t slice_window = 4;       // slices in flight at once
  // Chunk sizes differ and only the two ranks of a pair know theirs: the choice ignores `bytes`.
  bool uneven = false;
  // Of algorithms that reduce, only those with one order of summation (sums_at_once).
  bool deterministic = false;
  // With several hosts: simulates the best candidates (simulate.h). Takes milliseconds.
  bool simulate = false;
};

struct Choice {
  const Algorithm* algorithm = nullptr;
  uint32_t slices = 1;
  int size = 1;  // ranks
  uint64_t bytes = 0;
  uint64_t estimate_ps = 0;

  friend bool operator==(const Choice&, const Choice&) = default;
};

// `bytes`: all chunks together, the larger of input and output. Deterministic across ranks: uses
// only data equal on all ranks, integer arithmetic, and the order of the list on ties. Throws
// kMisuse, with the available names, if the forced algorithm is unknown or does not fit.
Choice choose(Collective collective, uint64_t bytes, size_t element_bytes, const Topology& topology,
              const ChooseOptions& options = {});

// The choice, then all other candidates, fastest first.
std::vector<Choice> candidates(Collective collective, uint64_t bytes, size_t element_bytes,
                               const Topology& topology, const ChooseOptions& options = {});

// "all_reduce of 16777216 bytes on 4 ranks: ring in 16 slices, about 4.21 ms".
std::string explain(const Choice& choice);
// One line for each candidate, in the given order.
std::string explain(const std::vector<Choice>& candidates);

}  // namespace hccl_like
