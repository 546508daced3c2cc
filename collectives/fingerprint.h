#pragma once
// The call check: 64 bits that say what a rank calls, sent with every message and compared before a buffer is touched.
#include <bit>
#include <cstdint>
#include <optional>
#include <string>

#include "collectives/algorithms.h"
#include "core/types.h"

namespace hccl_like {

// All ranks of a call have these in common. `detail` stands for what only needs to be equal, not to be read: sizes,
// factor, algorithm, laps.
struct Fingerprint {
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  bool reduces = false;
  int root = -1;  // -1: none
  uint64_t detail = 0;
  // With HCCL_LIKE_CALL_SITES, on all ranks: a hash of where the program makes the call, 0 if that is not known. Less room
  // is left for the detail then.
  std::optional<uint32_t> site;
  static constexpr uint32_t kSites = 1 << 18;

  uint64_t encode() const;
};

// "allreduce of float32 (sum)", "broadcast of int64 with root 3"; `with_site`: of one that has a site, "allreduce of float32 (sum)
// [call site 1a2b3]".
std::string describe_fingerprint(uint64_t encoded, bool with_site = false);

// A good 64-bit mixture of two values: the finaliser of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
// generators, 2014).
inline uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a + 0x9e3779b97f4a7c15u * (b + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A detail of which the call's factor is a part; few calls have one that is not 1.
inline uint64_t with_factor(uint64_t detail, double factor) {
  return factor == 1 ? detail : mix(detail, std::bit_cast<uint64_t>(factor));
}

}  // namespace hccl_like
