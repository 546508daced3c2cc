#pragma once
// Memory that one process shows to all its peers on the host: it writes, they read.
//
// Where a message to n peers is written n times, what lies here is written once. There are small areas, one for each
// communicator that wants one, and large lanes, one for each call whose payload passes by. What lies in them is their
// users' business (collectives/board, collectives/direct).
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/fd.h"
#include "core/mapping.h"
#include "transport/life.h"
#include "transport/shelf.h"

namespace hccl_like {

// This process's own. Any thread.
class Commons {
 public:
  static constexpr size_t kAreaBytes = 16 << 10;
  static constexpr size_t kAreaHeadBytes = 4 << 10;  // all that most communicators use of it
  static constexpr uint32_t kAreas = 4096;
  static constexpr size_t kLaneBytes = 4096 + (2 << 20);
  static constexpr uint32_t kLanes = 128;
  static constexpr size_t kLanesBegin = kAreaBytes * kAreas;
  static constexpr size_t kLifeBegin = kLanesBegin + kLaneBytes * kLanes;
  static constexpr size_t kBytes = kLifeBegin + 4096;

  // Throws kSystem.
  Commons();

  // For a peer; valid as long as this object.
  int fd() const noexcept { return memory_.get(); }

  Shelf& areas() { return areas_; }
  Shelf& lanes() { return lanes_; }

 private:
  Fd memory_;
  Mapping mapping_;
  Shelf areas_;
  Shelf lanes_;
  std::optional<Life> life_;
};

// A peer's, mapped for reading. Any thread.
class PeerCommons {
 public:
  // Takes the descriptor from a peer. Throws kPeerLost if it is not what a Commons makes, kSystem if it cannot be mapped.
  explicit PeerCommons(Fd memory);

  // `piece` is less than kAreas, kLanes.
  const std::byte* area(uint32_t piece) const {
    return mapping_.data() + size_t{piece} * Commons::kAreaBytes;
  }
  const std::byte* lane(uint32_t piece) const {
    return mapping_.data() + Commons::kLanesBegin + size_t{piece} * Commons::kLaneBytes;
  }
  // Whether the peer's process died, at once whatever its size; one that ended in order has not.
  bool owner_died() const {
    return reinterpret_cast<const LifeWord*>(mapping_.data() + Commons::kLifeBegin)->died();
  }

 private:
  Mapping mapping_;
};

}  // namespace hccl_like
