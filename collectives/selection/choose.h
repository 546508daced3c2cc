#pragma once
// Which algorithm a call uses, and in how many laps: the one that the cost model says is fastest.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/registry/algorithms.h"
#include "collectives/topology/topology.h"

namespace hccl_like {

struct ChooseOptions {
  std::string_view forced;       // the name of an algorithm; empty: the cost model decides
  uint64_t lap_bytes = 1 << 20;  // a payload larger than this is cut into laps
  uint32_t lap_window = 4;       // laps under way at once
  // Chunks differ in size and only each pair of ranks knows its own: neither algorithm nor laps may
  // depend on `bytes`.
  bool uneven = false;
  // With several hosts, closed forms are a first look only: the best of them are then run on the
  // clock of simulate.h, if they are not too long for that. Takes milliseconds.
  bool simulate = false;
};

struct Choice {
  const Algorithm* algorithm = nullptr;
  uint32_t laps = 1;
  int size = 1;  // ranks
  uint64_t bytes = 0;
  uint64_t estimate_ps = 0;

  friend bool operator==(const Choice&, const Choice&) = default;
};

// `bytes`: of all chunks together, which is the larger of input and output. Takes only what all
// ranks know, computes in whole numbers and breaks ties by the order of the list: so all ranks
// choose the same. Throws misuse, naming the algorithms that there are, if the forced one is
// unknown or does not fit.
Choice choose(Collective collective, uint64_t bytes, size_t element_bytes, const Topology& topology,
              const ChooseOptions& options = {});

// All that could be chosen: the choice, then the others, fastest first.
std::vector<Choice> candidates(Collective collective, uint64_t bytes, size_t element_bytes,
                               const Topology& topology, const ChooseOptions& options = {});

// "all_reduce of 16777216 bytes on 4 ranks: ring in 16 laps, about 4.21 ms".
std::string explain(const Choice& choice);
// The same for every candidate, one a line, as given.
std::string explain(const std::vector<Choice>& candidates);

}  // namespace hccl_like
