#include "transport/tcp/unconfirmed.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace hccl_like {
namespace {

constexpr size_t kLeastUnconfirmed = 64 << 10;

}  // namespace

void Unconfirmed::keep(std::span<const iovec> pieces, size_t bytes) {
  if (bytes > room()) grow(bytes);
  for (const iovec& piece : pieces) {
    const auto* from = static_cast<const std::byte*>(piece.iov_base);
    size_t left = std::min(piece.iov_len, bytes);
    bytes -= left;
    while (left > 0) {
      const size_t at = index(end_);
      const size_t part = std::min(left, capacity_ - at);
      std::memcpy(memory_.get() + at, from, part);
      from += part;
      left -= part;
      end_ += part;
    }
    if (bytes == 0) break;
  }
}

void Unconfirmed::confirm(uint64_t position) { begin_ = std::max(begin_, position); }

std::array<iovec, 2> Unconfirmed::from(uint64_t position) const {
  const auto bytes = static_cast<size_t>(end_ - position);
  if (bytes == 0) return {};
  const size_t at = index(position);
  const size_t first = std::min(bytes, capacity_ - at);
  return {iovec{memory_.get() + at, first}, iovec{memory_.get(), bytes - first}};
}

void Unconfirmed::grow(size_t bytes) {
  const auto kept = static_cast<size_t>(end_ - begin_);
  const size_t larger = std::bit_ceil(std::max(kept + bytes, kLeastUnconfirmed));
  auto memory = std::make_unique_for_overwrite<std::byte[]>(larger);
  uint64_t position = begin_;
  for (const iovec& part : from(begin_)) {
    for (size_t left = part.iov_len; left > 0;) {
      const size_t to = static_cast<size_t>(position) & (larger - 1);
      const size_t now = std::min(left, larger - to);
      std::memcpy(memory.get() + to,
                  static_cast<const std::byte*>(part.iov_base) + (part.iov_len - left), now);
      position += now;
      left -= now;
    }
  }
  memory_ = std::move(memory);
  capacity_ = larger;
}

}  // namespace hccl_like
