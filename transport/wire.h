#pragma once
// What a transport implements: a reliable, ordered stream of bytes to one peer process.
#include <cstddef>
#include <span>
#include <string_view>

#include "core/error.h"

namespace hccl_like {

class PeerCommons;

struct ConstRegion {
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

// One peer, both directions. Used by one thread at a time (whoever holds the engine). No method
// blocks, and none allocates once the wire is made. A wire knows nothing of messages, tags or
// collectives. wire_contract.h says the same as tests.
class Wire {
 public:
  virtual ~Wire() = default;
  Wire() = default;
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  // Takes as many of the pieces' bytes as fit now, in order, and returns how many; 0 means "not now". The memory is free again on
  // return. Bytes taken become visible to the peer without a further call. What was not taken is what the next call begins with: a wire
  // may have begun with it.
  virtual size_t write(std::span<const ConstRegion> pieces) = 0;

  // A contiguous view of bytes that have arrived, empty if there are none. At least `want` bytes
  // long if so many have arrived (want <= 4096). Valid until the next call of peek, release or
  // read.
  virtual std::span<const std::byte> peek(size_t want = 1) = 0;
  // Drops the first `bytes` of what peek showed; may be called several times on one view.
  virtual void release(size_t bytes) = 0;
  // Moves arrived bytes straight to `into`, in order; returns how many, 0 if none are there.
  virtual size_t read(std::span<std::byte> into) = 0;

  // Null while healthy. After the peer has gone: an Error of code kPeerLost, but only once every
  // byte that had arrived was read, or fewer are left than the last peek wanted (a peer may die in
  // the middle of a header). Sticky.
  virtual const Error* failure() const = 0;

  // Hands writes that wait in this process's own buffers to the kernel or the shared memory; true
  // when none are left.
  virtual bool flush() = 0;

  // Going to sleep: prepare_sleep() makes sure that the process's Poller wakes when bytes arrive
  // or, if `for_space`, when write() may take bytes again. Returns false if that is so already
  // (then don't sleep): the last peek would now show what it wanted. end_sleep() after waking, also
  // after false.
  virtual bool prepare_sleep(bool for_space) = 0;
  virtual void end_sleep() = 0;

  // Memory that both ends see, zeros at first, one part for each end to begin things in. Empty where there is none.
  struct Workspace {
    std::span<std::byte> own, peers;
  };
  virtual Workspace workspace() { return {}; }
  // What the peer shows to this host's processes; null where it shows nothing. Any thread.
  virtual const PeerCommons* commons() const { return nullptr; }
  // Wakes the peer's driver if it sleeps. Called after something changed in the workspace or in this process's Commons and
  // a full fence (core/fence.h) after that. Any thread.
  virtual void nudge() {}

  // "shm", "tcp", ...
  virtual std::string_view transport() const = 0;
};

}  // namespace hccl_like
