#pragma once
// The memory of a shm wire: a sealed memfd with two rings, one per direction.
#include <cstddef>
#include <memory>

#include "core/base/fd.h"
#include "core/memory/mapping.h"
#include "transport/shm/ring.h"

namespace hccl_like {

// The smallest valid ring size >= `bytes`: a power of two, whole pages, at most 1 GiB.
size_t round_ring_bytes(size_t bytes);

// An anonymous memfd, so nothing remains after crashes. The size is sealed, so that a peer cannot
// make accesses fail. The memory of the indices is reserved at creation, that of a ring by its
// writer when first used, so that idle links take little.
class ShmSegment {
 public:
  // `ring_bytes`: from round_ring_bytes(). Throws kSystem if memory is exhausted.
  static ShmSegment create(size_t ring_bytes);
  // Takes a peer's memfd. Throws kPeerLost if it is not from create(), kSystem if mapping fails.
  static ShmSegment open(Fd memory, size_t ring_bytes);

  int fd() const noexcept { return memory_.get(); }
  size_t ring_bytes() const noexcept { return ring_bytes_; }
  // The descriptor is not needed after both ends have mapped it.
  void close_fd() noexcept { memory_.reset(); }

  // The connector writes direction 0, the acceptor direction 1.
  RingWriter writer(int direction) const {
    return {indices(direction), data(direction), ring_bytes_};
  }
  RingReader reader(int direction) const {
    return {indices(direction), data(direction), ring_bytes_};
  }
  // Allocates `bytes` of a ring from `begin` on; false, with errno, on failure.
  bool make(int direction, size_t begin, size_t bytes) const;
  // The space after the indices, half for each side.
  std::span<std::byte> workspace(int side) const;
  // Keeps the whole mapping valid.
  std::shared_ptr<const void> memory() const { return mapping_; }

 private:
  ShmSegment(Fd memory, size_t ring_bytes);
  RingIndices& indices(int direction) const;
  std::byte* data(int direction) const;

  Fd memory_;
  size_t ring_bytes_;
  std::shared_ptr<const Mapping> mapping_;  // indices, then each ring twice
  std::byte* base_ = nullptr;               // of the mapping
};

}  // namespace hccl_like
