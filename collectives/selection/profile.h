#pragma once
// The measured best algorithms of a cluster, a file written by `hccl-like tune`.
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/registry/algorithms.h"
#include "collectives/topology/hosts.h"

namespace hccl_like {

// Immutable. For each layout of ranks and each collective: sizes and the best algorithm at each
// size:
//   {"hccl_like_profile": 1, "layouts": {"2x4": {"allreduce": [[8, "leaders_one_shot"], [65536,
//   "rails_direct"]]}}}
class Profile {
 public:
  // An empty profile.
  Profile() = default;
  // Throws kMisuse, with `where`, on an invalid profile or an unknown algorithm.
  static Profile parse(std::string_view text, const std::string& where);

  // The algorithm at the size nearest to `bytes` (all chunks together) by ratio. Null if the layout
  // or collective is unknown, or the algorithm does not fit.
  const Algorithm* find(Collective collective, const Hosts& hosts, uint64_t bytes) const;

 private:
  struct Best {
    uint64_t bytes;
    const Algorithm* algorithm;
  };
  using Row = std::vector<Best>;  // by rising size
  std::map<std::string, std::array<Row, kCollectives>, std::less<>> layouts_;
};

// "4x8" for 4 hosts of 8 consecutive ranks each, else the host of each rank, "0,0,1".
std::string layout_name(const Hosts& hosts);

}  // namespace hccl_like
