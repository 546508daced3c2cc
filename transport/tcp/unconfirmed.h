#pragma once
// The sent bytes of a stream that the peer's kernel has not confirmed yet.
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace hccl_like {

// Positions count the bytes of the stream from its beginning. The memory grows to the largest
// number of unconfirmed bytes, which the kernel's send buffer bounds, and stays.
class Unconfirmed {
 public:
  // The kept bytes are [begin, end).
  uint64_t begin() const { return begin_; }
  uint64_t end() const { return end_; }
  // Bytes that keep() takes without more memory.
  size_t room() const { return capacity_ - static_cast<size_t>(end_ - begin_); }

  // Appends the first `bytes` bytes of the pieces.
  void keep(std::span<const iovec> pieces, size_t bytes);
  // Forgets the bytes before `position`; nothing if they are forgotten already.
  void confirm(uint64_t position);
  // The kept bytes from `position` on, in at most two parts. Requires begin <= position <= end.
  std::array<iovec, 2> from(uint64_t position) const;

 private:
  void grow(size_t bytes);
  size_t index(uint64_t position) const { return static_cast<size_t>(position) & (capacity_ - 1); }

  std::unique_ptr<std::byte[]> memory_;
  size_t capacity_ = 0;  // a power of two, or 0
  uint64_t begin_ = 0, end_ = 0;
};

}  // namespace hccl_like
