#pragma once
// The interface of a transport: a reliable, ordered stream of bytes to one peer process.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "core/base/error.h"

namespace hccl_like {

class RemoteMemory;
class SameHostPeer;

struct ConstRegion {
  const std::byte* data = nullptr;
  size_t bytes = 0;
  bool stays = false;  // the bytes do not change before Wire::let_go() allows it
};

// Events that end a sleep. The loss of the peer always ends it.
struct WakeFor {
  bool bytes = true;   // at least the `want` bytes of the last peek
  bool space = false;  // for write()
};

// Hears of cards or connections that fail: how many took the place of broken ones since the last
// call, and how many are broken now. Called by the driver.
using RailsChanged = std::function<void(uint32_t replaced, uint32_t down)>;

// Optional services of a wire besides bytes. The wire owns them. Null where the wire has none.
struct WireExtensions {
  SameHostPeer* same_host = nullptr;
  RemoteMemory* remote_memory = nullptr;  // the peer's memory, read without the peer's help
  RailsChanged* rails_changed = nullptr;  // for the owner of the wire to set
};

// Both directions to one peer. Used by one thread at a time (the driver). No method blocks. No
// method allocates after construction. wire_contract.h tests this contract.
class Wire {
 public:
  explicit Wire(std::string transport, size_t alignment = 1)
      : transport_(std::move(transport)), alignment_(alignment) {}
  virtual ~Wire() = default;
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  // Takes as many bytes of the pieces as fit, in order, and returns their number; 0 means "try
  // again later". The caller may reuse the memory after return, unless it `stays`. Accepted bytes
  // reach the peer without a further call, unless owes(). The next call must begin with the bytes
  // that were not accepted: the wire may have begun to send them.
  virtual size_t write(std::span<const ConstRegion> pieces) = 0;

  // Returns a contiguous view of arrived bytes, possibly empty. The view has at least `want` bytes
  // (want <= 4096) if so many have arrived. Valid until the next peek, release or read.
  virtual std::span<const std::byte> peek(size_t want = 1) = 0;
  // Consumes the first `bytes` of the last view. May be called several times on one view.
  virtual void release(size_t bytes) = 0;
  // Moves arrived bytes to `into`, in order. Returns their number, 0 if there are none.
  virtual size_t read(std::span<std::byte> into) = 0;

  // Null while healthy. Sticky. After the loss of the peer: kPeerLost, reported only when all
  // arrived bytes are read or fewer remain than the last peek wanted (the peer died inside a
  // header).
  virtual const Error* failure() const = 0;

  // Hands locally buffered writes to the kernel or to shared memory. True when none are left.
  virtual bool flush() = 0;
  // Whether accepted bytes leave this process only when a method is called again (no progress
  // thread, or an own buffer). The driver must then keep calling, even with no message in flight.
  virtual bool owes() { return false; }
  // Whether the caller may reuse the memory of all regions that stayed among the first `accepted`
  // bytes of the stream. With `copy`, the result is true: the wire copies the bytes that it needs.
  virtual bool let_go(uint64_t accepted, bool copy) {
    static_cast<void>(accepted), static_cast<void>(copy);
    return true;
  }

  // Arms the wire so that the process's Poller wakes for `wake` or for the loss of the peer.
  // Returns false, and the caller must not sleep, if that has already occurred. Call end_sleep() in
  // both cases. With `wake.bytes == false`, unread bytes do not prevent the sleep, and new bytes
  // end it at most once. The loss of the peer then prevents the sleep even before the last bytes
  // are read. failure() still reports the loss only after those bytes.
  virtual bool prepare_sleep(WakeFor wake) = 0;
  virtual void end_sleep() = 0;

  virtual WireExtensions extensions() { return {}; }

  // "shm", "tcp", ...
  const std::string& transport() const { return transport_; }
  // Preferred alignment of long payloads in the stream: a power of two <= 64, equal at both ends.
  size_t alignment() const { return alignment_; }

 private:
  const std::string transport_;
  const size_t alignment_;
};

}  // namespace hccl_like
