#pragma once
// What a transport implements: a reliable, ordered stream of bytes to one peer process.
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "core/base/error.h"

namespace hccl_like {

class PeerCommons;
class RemoteMemory;

struct ConstRegion {
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

// What a sleep ends for, besides the peer's end.
struct WakeFor {
  bool bytes = true;   // as many as the last peek wanted
  bool space = false;  // for write()
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

  // Takes as many of the pieces' bytes as fit now, in order, and returns how many; 0 means "not
  // now". The memory is free again on return. Bytes taken become visible to the peer without a
  // further call, unless the wire owes() them. What was not taken is what the next call begins
  // with: a wire may have begun with it.
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
  // Whether bytes that were taken are still in this process's threads, and leave them only when
  // some method is called again: of a library that moves when it is called, or of a buffer of the
  // wire's own. Then somebody goes on calling, also when no message is under way.
  virtual bool owes() { return false; }

  // Going to sleep: prepare_sleep() makes sure that the process's Poller wakes for what is asked,
  // and when the peer goes. Returns false if it is so already (then don't sleep): the last peek
  // would now show what it wanted, or write() may take bytes, or there is an end to tell.
  // end_sleep() after waking, also after false.
  //
  // Whoever leaves bytes where they are, as it cannot use them yet, does not ask for bytes: those
  // that are there neither refuse the sleep nor end it, and new ones end it once at most. That the
  // peer has gone refuses it also before its last bytes were read, after which only failure()
  // tells.
  virtual bool prepare_sleep(WakeFor wake) = 0;
  virtual void end_sleep() = 0;

  // Where what is long had best begin, in bytes from the beginning of the stream: a power of two,
  // at most 64, the same at both ends.
  virtual size_t alignment() const { return 1; }

  // Memory that both ends see, zeros at first, one part for each end to begin things in. Empty
  // where there is none.
  struct Workspace {
    std::span<std::byte> own, peers;
    std::shared_ptr<const void> memory{};  // both stay valid while it is held
  };
  virtual Workspace workspace() { return {}; }
  // The peer's memory, where this end can read it by itself; null where it cannot. Lives as long as
  // the wire.
  virtual RemoteMemory* remote_memory() const { return nullptr; }
  // What the peer shows to this host's processes; null where it shows nothing. Any thread.
  virtual const PeerCommons* commons() const { return nullptr; }
  // Wakes the peer's driver if it sleeps. Called after something changed in the workspace or in
  // this process's Commons and a full fence (core/machine/fence.h) after that. Any thread.
  virtual void nudge() {}

  // "shm", "tcp", ...
  virtual std::string_view transport() const = 0;
};

}  // namespace hccl_like
