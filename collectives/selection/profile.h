#pragma once
// Which algorithms were measured to be the fastest on a cluster, as `hccl-like tune` writes it
// down.
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/registry/algorithms.h"
#include "collectives/topology/hosts.h"

namespace hccl_like {

// Immutable. A profile holds, for each layout of ranks on hosts and each collective, sizes and the
// best algorithm at each:
//   {"hccl_like_profile": 1, "layouts": {"2x4": {"allreduce": [[8, "leaders_one_shot"], [65536,
//   "rails_direct"]]}}}
class Profile {
 public:
  // Nothing was measured.
  Profile() = default;
  // Throws misuse, naming `where`, on what is no profile. Names of algorithms that this version
  // does not have are errors.
  static Profile parse(std::string_view text, const std::string& where);

  // The algorithm for `bytes` in all chunks together: that of the size which is nearest as a ratio.
  // Null if the profile does not know the layout or the collective, or its algorithm does not fit.
  const Algorithm* find(Collective collective, const Hosts& hosts, uint64_t bytes) const;

 private:
  struct Best {
    uint64_t bytes;
    const Algorithm* algorithm;
  };
  using Row = std::vector<Best>;  // by rising size
  std::map<std::string, std::array<Row, kCollectives>, std::less<>> layouts_;
};

// What a profile calls a layout: "4x8" for 4 hosts of 8 ranks each in order, else the hosts of the
// ranks, "0,0,1".
std::string layout_name(const Hosts& hosts);

}  // namespace hccl_like
