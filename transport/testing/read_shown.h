#pragma once
// Wire::read() by peek() and release(), for wires without a faster way.
#include <algorithm>
#include <cstddef>
#include <span>

#include "transport/wire/wire.h"

namespace hccl_like {

inline size_t read_shown(Wire& wire, std::span<std::byte> into) {
  const auto shown = wire.peek(1);
  const size_t part = std::min(shown.size(), into.size());
  std::copy_n(shown.begin(), part, into.begin());
  wire.release(part);
  return part;
}

}  // namespace hccl_like
