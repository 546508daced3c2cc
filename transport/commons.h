#pragma once
// Memory that one process shows to all its peers on the host: it writes, they read.
//
// Where a message to n peers is written n times, what lies here is written once. It is cut into areas of one size, one
// for each communicator that wants one; what lies in an area is the communicator's business (collectives/board.h).
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/fd.h"
#include "core/mapping.h"

namespace hccl_like {

// This process's own. Any thread.
class Commons {
 public:
  static constexpr size_t kAreaBytes = 16 << 10;
  static constexpr uint32_t kAreas = 4096;

  // Throws kSystem. Costs address space only: an area's memory is reserved when it is first taken.
  Commons();

  // For a peer; valid as long as this object.
  int fd() const noexcept { return memory_.get(); }

  // An area that nobody else has, or nothing if there is none or its memory cannot be had. What is in it is left over
  // from its last owner.
  std::optional<uint32_t> take();
  // Nobody reads it any more.
  void give_back(uint32_t area);
  // Somebody may still read it: it is given back once `unread` says so, which take() asks now and then.
  void retire(uint32_t area, std::function<bool()> unread);
  std::byte* data(uint32_t area) const { return mapping_.data() + size_t{area} * kAreaBytes; }

 private:
  Fd memory_;
  Mapping mapping_;
  std::mutex mutex_;
  uint32_t fresh_ = 0;  // areas from here on have never been taken
  std::vector<uint32_t> free_;
  std::vector<std::pair<uint32_t, std::function<bool()>>> retired_;
};

// A peer's, mapped for reading. Any thread.
class PeerCommons {
 public:
  // Takes the descriptor from a peer. Throws kPeerLost if it is not what a Commons makes, kSystem if it cannot be mapped.
  explicit PeerCommons(Fd memory);

  const std::byte* data(uint32_t area) const {
    return mapping_.data() + size_t{area} * Commons::kAreaBytes;
  }

 private:
  Mapping mapping_;
};

}  // namespace hccl_like
