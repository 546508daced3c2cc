#pragma once
// Float32 in fewer bytes, block by block (Highway, dispatched at run time).
//
// A block is 32 elements; a short last block is padded with zeros.
//   bf16   32 bfloat16, little-endian
//   mx8    MXINT8: an E8M0 scale, then 32 int8 of which 64 is 1
//   mx4    MXFP4: an E8M0 scale, then 16 bytes; byte i has element i in its low half and element
//          i + 16 in its high half, both E2M1
// The scale is the smallest power of two with which the block's largest magnitude is in range:
// nothing is cut off, but mx4 makes 1.5 * 2^127 of larger numbers. Rounds to nearest even. A block
// of mx8 or mx4 with a NaN or an infinity has the scale NaN: all of it decodes as NaN. Numbers that
// were decoded are encoded without loss, if the blocks begin at the same elements.
//
// Paper: Rouhani et al., OCP Microscaling Formats (MX) Specification 1.0, 2023.
#include <cstddef>

#include "core/settings/config_values.h"

namespace hccl_like {

struct Codec {
  static constexpr size_t kBlock = 32;  // elements

  Compression compression = Compression::kNone;
  size_t block_bytes = 0;  // of an encoded block
  // Whole blocks of `elements` floats. The memory of one does not overlap that of the other.
  void (*encode)(std::byte* to, const std::byte* floats, size_t elements) noexcept = nullptr;
  void (*decode)(std::byte* floats, const std::byte* from, size_t elements) noexcept = nullptr;

  size_t bytes(size_t elements) const { return (elements + kBlock - 1) / kBlock * block_bytes; }
};

// Null for kNone. Thread-safe.
const Codec* codec(Compression compression) noexcept;

}  // namespace hccl_like
