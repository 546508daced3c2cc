#pragma once
// Inputs of reductions for tests, and the comparison with reduce_reference.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "device/testing/reduce_reference.h"

namespace hccl_like::reduce_reference {

using Bytes = std::vector<std::byte>;

// Half of the elements are any bits at all (for floats: NaN, infinities, subnormals too), half are
// ordinary: small integers, and floats between 1/4 and 4 whose sums must be rounded.
inline Bytes random_bytes(DataType type, size_t elements, size_t shift, std::mt19937& random) {
  const size_t size = size_of(type),
               float_bytes = kReferences[static_cast<size_t>(type)].float_bytes;
  Bytes bytes(elements * size + shift);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const size_t part = float_bytes == 0 ? size : float_bytes;
  for (size_t at = shift; at + part <= bytes.size(); at += part) {
    const auto kind = random() % 16;
    if (kind < 8) continue;
    if (float_bytes == 0) {
      std::fill(bytes.begin() + static_cast<long>(at) + 1,
                bytes.begin() + static_cast<long>(at + part), std::byte{0});
      bytes[at] = static_cast<std::byte>(random() % 5);
    } else if (kind == 15) {
      std::fill(bytes.begin() + static_cast<long>(at), bytes.begin() + static_cast<long>(at + part),
                std::byte{0});
      bytes[at + part - 1] = random() % 2 == 0 ? std::byte{0x80} : std::byte{0};  // 0 or -0
    } else {
      // Clear all but the exponent's lowest bit, set its upper ones below the highest: a number
      // near 1.
      auto& top = bytes[at + part - 1];
      top = (top & std::byte{0x87}) | std::byte{0x38};
      if (part == 4 || (part == 2 && type == DataType::kBFloat16))
        top = (top & std::byte{0x80}) | std::byte{0x3f};
      if (part == 8)
        top = (top & std::byte{0x80}) | std::byte{0x3f}, bytes[at + 6] |= std::byte{0xe0};
    }
  }
  return bytes;
}

inline void expect_same(DataType type, ReduceOp op, const std::byte* actual,
                        const std::byte* expected, size_t elements, const std::string& what) {
  const Reference& ref = kReferences[static_cast<size_t>(type)];
  const size_t size = size_of(type);
  for (size_t i = 0; i < elements; ++i) {
    if (ref.same(actual + i * size, expected + i * size, size)) continue;
    std::string bits[2];
    for (size_t b = size; b-- > 0;) {
      for (int side = 0; side < 2; ++side) {
        char text[3];
        std::snprintf(text, sizeof(text), "%02x",
                      static_cast<unsigned>((side == 0 ? actual : expected)[i * size + b]));
        bits[side] += text;
      }
    }
    FAIL() << name(type) << " " << name(op) << " " << what << ", element " << i << " of "
           << elements << ": " << bits[0] << ", expected " << bits[1];
  }
}

}  // namespace hccl_like::reduce_reference
