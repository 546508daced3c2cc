#include "transport/tcp/unconfirmed.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace hccl_like {
namespace {

constexpr size_t kLeastUnconfirmed = 64 << 10;

}  // namespace

void Unconfirmed::keep(const ConstRegion& bytes) {
  if (bytes.bytes == 0) return;
  if (bytes.stays) {
    held_.push_back({end_, bytes});
  } else {
    if (bytes.bytes > room()) grow(bytes.bytes);
    put(end_, bytes.data, bytes.bytes);
  }
  end_ += bytes.bytes;
}

void Unconfirmed::let_go(uint64_t end) {
  if (holds(end) && end_ - begin_ > capacity_) grow(0);
  for (; holds(end); held_.pop_front()) {
    const Held& one = held_.front();
    const uint64_t position = std::max(begin_, one.position);
    put(position, one.bytes.data + (position - one.position),
        static_cast<size_t>(one.end() - position));
  }
}

void Unconfirmed::confirm(uint64_t position) {
  begin_ = std::max(begin_, position);
  while (!held_.empty() && held_.front().end() <= begin_) held_.pop_front();
}

ConstRegion Unconfirmed::from(uint64_t position) const {
  uint64_t end = end_;
  for (const Held& one : held_) {
    if (one.end() <= position) continue;
    if (one.position <= position)
      return {one.bytes.data + (position - one.position),
              static_cast<size_t>(one.end() - position)};
    end = one.position;
    break;
  }
  const size_t at = index(position);
  return {memory_.get() + at, std::min(static_cast<size_t>(end - position), capacity_ - at)};
}

void Unconfirmed::put(uint64_t position, const std::byte* from, size_t bytes) {
  while (bytes > 0) {
    const size_t at = index(position);
    const size_t part = std::min(bytes, capacity_ - at);
    std::memcpy(memory_.get() + at, from, part);
    from += part;
    bytes -= part;
    position += part;
  }
}

void Unconfirmed::grow(size_t bytes) {
  const auto kept = static_cast<size_t>(end_ - begin_);
  const size_t larger = std::bit_ceil(std::max(kept + bytes, kLeastUnconfirmed));
  Unconfirmed copy;
  copy.memory_ = std::make_unique_for_overwrite<std::byte[]>(larger);
  copy.capacity_ = larger;
  for (uint64_t position = begin_; position < end_;) {
    const ConstRegion part = from(position);
    const bool held = std::ranges::any_of(
        held_, [&](const Held& one) { return one.position <= position && position < one.end(); });
    if (!held) copy.put(position, part.data, part.bytes);
    position += part.bytes;
  }
  memory_ = std::move(copy.memory_);
  capacity_ = larger;
}

}  // namespace hccl_like
