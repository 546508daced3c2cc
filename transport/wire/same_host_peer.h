#pragma once
// Services of a wire to a process of this host besides bytes.
#include <cstddef>
#include <memory>
#include <span>

namespace hccl_like {

class PeerCommons;

class SameHostPeer {
 public:
  // Memory that both ends map, initially zero; each allocates from its part. Empty if not
  // supported.
  struct Workspace {
    std::span<std::byte> own, peers;
    std::shared_ptr<const void> memory{};  // keeps both spans valid
  };
  virtual Workspace workspace() = 0;
  // The memory that the peer shows to all processes of this host; null if none. Any thread.
  virtual const PeerCommons* commons() const = 0;
  // Wakes the peer's driver if it sleeps. Requires a full fence (core/machine/fence.h) after the
  // change in the workspace or in this process's Commons. Any thread.
  virtual void nudge() = 0;

 protected:
  ~SameHostPeer() = default;
};

}  // namespace hccl_like
