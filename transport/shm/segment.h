#pragma once
// The memory behind a shm wire: a sealed memfd with two rings, one per direction.
#include <cstddef>
#include <memory>

#include "core/base/fd.h"
#include "core/memory/mapping.h"
#include "transport/shm/ring.h"

namespace hccl_like {

// The smallest ring that holds `bytes`: a power of two and whole pages, at most 1 GiB.
size_t round_ring_bytes(size_t bytes);

// Nameless, so nothing is left behind whoever dies when. Its size is sealed, so that touching it
// can't fail later, whatever the peer does to it. The indices' memory is there from the beginning;
// a ring's is made by its writer when it first comes by, so that a link that carries little takes
// little.
class ShmSegment {
 public:
  // `ring_bytes` as round_ring_bytes() gives it. Throws kSystem if the memory is not there.
  static ShmSegment create(size_t ring_bytes);
  // Takes a memfd from a peer. Throws kPeerLost if it is not what create() makes, kSystem if it
  // can't be mapped.
  static ShmSegment open(Fd memory, size_t ring_bytes);

  int fd() const noexcept { return memory_.get(); }
  size_t ring_bytes() const noexcept { return ring_bytes_; }
  // The descriptor isn't needed once both ends have mapped it.
  void close_fd() noexcept { memory_.reset(); }

  // Direction 0 is written by the connector, 1 by the acceptor.
  RingWriter writer(int direction) const {
    return {indices(direction), data(direction), ring_bytes_};
  }
  RingReader reader(int direction) const {
    return {indices(direction), data(direction), ring_bytes_};
  }
  // Makes the memory of `bytes` of a ring from `begin` on; false, with errno, if the system has
  // none.
  bool make(int direction, size_t begin, size_t bytes) const;
  // What is left beside the indices, half for each side.
  std::span<std::byte> workspace(int side) const;
  // All of it stays mapped while this is held.
  std::shared_ptr<const void> memory() const { return mapping_; }

 private:
  ShmSegment(Fd memory, size_t ring_bytes);
  RingIndices& indices(int direction) const;
  std::byte* data(int direction) const;

  Fd memory_;
  size_t ring_bytes_;
  std::shared_ptr<const Mapping> mapping_;  // indices, then each ring twice
  std::byte* base_ = nullptr;               // of that
};

}  // namespace hccl_like
