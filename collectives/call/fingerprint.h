#pragma once
// The call check: 64 bits that say what a rank calls, sent with every message and compared before a
// buffer is touched.
#include <bit>
#include <cstdint>
#include <optional>
#include <string>

#include "collectives/schedule/collective.h"
#include "core/base/types.h"

namespace hccl_like {

// All ranks of a call have these in common. `detail` stands for what only needs to be equal, not to
// be read: sizes, factor, algorithm, laps. It is 0 or a mixture (mix(), below), any 34 bits of
// which are as good as others.
struct Fingerprint {
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  bool reduces = false;
  int root = -1;  // -1: none
  uint64_t detail = 0;
  // With HCCL_LIKE_CALL_SITES, on all ranks: a hash of where the program makes the call, 0 if that
  // is not known. Less room is left for the detail then.
  std::optional<uint32_t> site;
  static constexpr unsigned kSiteBits = 18;
  static constexpr uint32_t kSites = 1u << kSiteBits;

  uint64_t encode() const {
    return static_cast<uint64_t>(collective) | static_cast<uint64_t>(type) << kTypeAt |
           static_cast<uint64_t>(op) << kOpAt | static_cast<uint64_t>(reduces) << kReducesAt |
           static_cast<uint64_t>(static_cast<uint16_t>(root + 1)) << kRootAt |
           (site ? detail << kSiteBits | *site : detail) << kDetailAt;
  }

  // From the lowest bit: collective 4, type 5, operation 4, reduces 1, root + 1 16, detail 34, of
  // which the lower 18 are the site if there is one.
  static constexpr unsigned kTypeAt = 4, kOpAt = 9, kReducesAt = 13, kRootAt = 14, kDetailAt = 30;
};

// "all_reduce of float32 (sum)", "broadcast of int64 with root 3"; `with_site`: of one that has a
// site, "all_reduce of float32 (sum) [call site 1a2b3]".
std::string describe_fingerprint(uint64_t encoded, bool with_site = false);

// A 64-bit mixture of two values: the halves of their product folded together, after both were made
// unlike 0 and small numbers (the step of MUM, Makarov, 2016, and of wyhash, Wang Yi, 2019; the
// constants are the latter's).
inline uint64_t mix(uint64_t a, uint64_t b) {
  __extension__ using Product = unsigned __int128;
  const Product product = static_cast<Product>(a ^ 0xa0761d6478bd642fu) * (b ^ 0xe7037ed1a0b428dbu);
  return static_cast<uint64_t>(product >> 64) ^ static_cast<uint64_t>(product);
}

// A detail of which the call's factor is a part; few calls have one that is not 1.
inline uint64_t with_factor(uint64_t detail, double factor) {
  return factor == 1 ? detail : mix(detail, std::bit_cast<uint64_t>(factor));
}

}  // namespace hccl_like
