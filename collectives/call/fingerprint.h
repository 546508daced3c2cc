#pragma once
// 64 bits that identify a rank's call; sent with every message, compared before a buffer is used.
#include <bit>
#include <cstdint>
#include <optional>
#include <string>

#include "collectives/schedule/collective.h"
#include "core/base/types.h"

namespace hccl_like {

// Values that all ranks of a call share. `detail`: values that are only compared (sizes, factor,
// algorithm, slices); 0 or a result of mix(), any 34 bits of which are equally good.
struct Fingerprint {
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  bool reduces = false;
  int root = -1;  // -1: none
  uint64_t detail = 0;
  // With HCCL_LIKE_CALL_SITES, on all ranks: hash of the call site, 0 if unknown.
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

// The detail of an operation that shows the memory of a message in its place
// (collectives/stream/stream_message.h).
inline constexpr uint64_t kShowsMemory = 0x2c9f3a71d;
inline bool shows_memory(uint64_t encoded) {
  return encoded >> Fingerprint::kDetailAt == kShowsMemory;
}

// "broadcast of int64 with root 3"; `with_site`: "all_reduce of float32 (sum) [call site 1a2b3]".
std::string describe_fingerprint(uint64_t encoded, bool with_site = false);

// Mixes two values: folds the halves of their product after an xor with constants. The step of MUM
// (Makarov, 2016) and wyhash (Wang Yi, 2019), with wyhash's constants.
inline uint64_t mix(uint64_t a, uint64_t b) {
  __extension__ using Product = unsigned __int128;
  const Product product = static_cast<Product>(a ^ 0xa0761d6478bd642fu) * (b ^ 0xe7037ed1a0b428dbu);
  return static_cast<uint64_t>(product >> 64) ^ static_cast<uint64_t>(product);
}

// A detail that includes the call's factor, unless that is 1.
inline uint64_t with_factor(uint64_t detail, double factor) {
  return factor == 1 ? detail : mix(detail, std::bit_cast<uint64_t>(factor));
}

}  // namespace hccl_like
