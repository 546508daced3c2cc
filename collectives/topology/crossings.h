#pragma once
// Counts how communication patterns cross hosts, for the cost model.
#include <array>
#include <cstdint>

namespace hccl_like {

class Hosts;

// Counts of ranks refer to the fullest host, whose uplink is the bottleneck.
struct Crossings {
  uint64_t ranks = 1;
  uint64_t hosts = 1;
  uint64_t most = 1;   // ranks on the fullest host
  uint64_t least = 1;  // ranks on the emptiest host
  uint64_t pairs = 0;  // of a rank on one host and a rank elsewhere
  uint64_t hops = 0;   // hops from each rank to the next that leave a host
  // By k: ranks of a host whose partner, at distance 2^k upwards (shift) or with bit k of the rank
  // flipped (exchange), is on another host.
  std::array<uint32_t, 32> shift{}, exchange{};

  static Crossings of(const Hosts& hosts);
  // One rank on each host.
  static Crossings apart(uint64_t ranks);
  // All ranks on one host.
  static Crossings together(uint64_t ranks);
};

}  // namespace hccl_like
