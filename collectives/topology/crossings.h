#pragma once
// How the patterns in which algorithms talk lie across hosts: what the cost model wants to know of
// a layout of ranks.
#include <array>
#include <cstdint>

namespace hccl_like {

class Hosts;

// Numbers of ranks are those of the host that has most of them: its way out is the narrowest.
struct Crossings {
  uint64_t ranks = 1;
  uint64_t hosts = 1;
  uint64_t most = 1;   // ranks of the fullest host
  uint64_t least = 1;  // and of the emptiest
  uint64_t pairs = 0;  // of a rank of one host and a rank elsewhere
  uint64_t hops = 0;   // of all ranks to the next, those that leave a host
  // By k: ranks of a host whose partner at distance 2^k, up the ranks or in the k-th bit of its
  // number, is elsewhere.
  std::array<uint32_t, 32> shift{}, exchange{};

  static Crossings of(const Hosts& hosts);
  // Each rank on a host of its own.
  static Crossings apart(uint64_t ranks);
  // All ranks on one host.
  static Crossings together(uint64_t ranks);
};

}  // namespace hccl_like
