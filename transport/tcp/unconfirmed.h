#pragma once
// The sent bytes of a stream that the peer's kernel has not confirmed yet.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "transport/wire/wire.h"

namespace hccl_like {

// Positions count the bytes of the stream from its beginning. The memory grows to the largest
// number of unconfirmed bytes, which the kernel's send buffer bounds, and stays.
class Unconfirmed {
 public:
  // The kept bytes are [begin, end).
  uint64_t begin() const { return begin_; }
  uint64_t end() const { return end_; }
  // Bytes that keep() and let_go() take without more memory.
  size_t room() const {
    const auto kept = static_cast<size_t>(end_ - begin_);
    return kept < capacity_ ? capacity_ - kept : 0;
  }

  // Appends a copy of the bytes or, if they stay, their address.
  void keep(const ConstRegion& bytes);
  // Copies the bytes before `end` that are kept by address.
  void let_go(uint64_t end);
  // Whether bytes before `end` are kept by address.
  bool holds(uint64_t end) const { return !held_.empty() && held_.front().position < end; }
  // Forgets the bytes before `position`; nothing if they are forgotten already.
  void confirm(uint64_t position);
  // The kept bytes from `position` on, as far as they lie together. Requires begin <= position <
  // end.
  ConstRegion from(uint64_t position) const;

 private:
  struct Held {
    uint64_t position;
    ConstRegion bytes;
    uint64_t end() const { return position + bytes.bytes; }
  };
  void put(uint64_t position, const std::byte* from, size_t bytes);
  void grow(size_t bytes);
  size_t index(uint64_t position) const { return static_cast<size_t>(position) & (capacity_ - 1); }

  std::unique_ptr<std::byte[]> memory_;  // by position, but for what is held
  size_t capacity_ = 0;                  // a power of two, or 0
  std::deque<Held> held_;                // by position
  uint64_t begin_ = 0, end_ = 0;
};

}  // namespace hccl_like
