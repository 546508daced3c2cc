#pragma once
// Zero-copy path of long messages: the wire carries only memory descriptors. Implementations:
// mapped memory (shared_rendezvous.h), and one-sided reads of the peer's memory
// (remote_rendezvous.h).
//
// The sender allocates a slot and announces the slot with its memory. The receiver answers with its
// own memory. Both ends complete after the transfer and must keep their memory until then: an end
// that gives up waits until the other end has released the memory.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "device/device.h"
#include "transport/message/fifo.h"
#include "transport/message/message.h"
#include "transport/wire/wire.h"

namespace hccl_like {

// Used by one thread at a time, like its link.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  Rendezvous() = default;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Whether this end can use the zero-copy path for the message.
  virtual bool can_send(const Send& send) const = 0;
  virtual bool can_receive(const Recv& recv) const = 0;
  // The memory of a receive, for its sender. Requires can_receive().
  virtual ExportedRange receive_range(const Recv& recv) const = 0;

  // Device memory that host code cannot access: as in RemoteMemory.
  virtual bool reaches_devices() const { return false; }
  virtual bool prepare(const std::byte*, size_t) { return false; }

  // --- sends ---
  virtual bool has_room() const { return true; }
  // Allocates a slot for a message with can_send(). Returns nothing if no slot is free.
  virtual std::optional<uint32_t> offer(Send& send) = 0;
  virtual ExportedRange send_range(uint32_t slot) const = 0;
  // The receiver has sent the address of its memory.
  virtual void begin_send(uint32_t slot, const ExportedRange& into) = 0;
  // The message goes through the wire (the receiver's memory is not accessible) or is cancelled.
  virtual void retract(uint32_t slot) = 0;

  // --- receives ---
  // Whether the peer may announce this slot now.
  virtual bool may_begin(uint64_t slot) const = 0;
  // The sender has announced its memory and knows the receive's memory.
  virtual void begin_receive(Recv& recv, uint32_t slot, const ExportedRange& from) = 0;
  // The announced message is dropped or comes through the wire.
  virtual void decline(uint32_t slot) = 0;
  // The same for a receive that has begun; no-op otherwise.
  virtual void end_receive(const Recv& recv) = 0;

  // True if progress() has no work. Not virtual, because every turn of every link calls this.
  bool idle() const { return active_ == 0; }
  // Moves at most one part each way. True if anything changed. `copy == false`: only completes.
  virtual bool progress(bool copy) = 0;
  // Completed messages, and sends that must use the wire because an end cannot access the memory.
  Send* take_sent() { return take(sent_); }
  Recv* take_received() { return take(received_); }
  Send* take_refused() { return take(refused_); }

  virtual bool sends() const = 0;
  // Whether progress() could do something now. Called before a sleep.
  virtual bool could_advance() = 0;
  // Gives up one communicator or all. `peer_lives`: the peer may be transferring a message.
  virtual void cancel(std::optional<uint64_t> communicator, bool peer_lives) = 0;

 protected:
  template <class T>
  static T* take(Fifo<T*>& fifo) {
    return fifo.empty() ? nullptr : fifo.pop();
  }

  size_t active_ = 0;  // messages under way
  Fifo<Send*> sent_, refused_;
  Fifo<Recv*> received_;
};

// Shorter messages are as fast through the wire.
inline constexpr size_t kLeastRendezvous = 32 << 10;
// The same for memory that both ends map.
inline constexpr size_t kLeastMapped = 64 << 10;

// Chooses the implementation by the wire's features. The wire must outlive it.
std::unique_ptr<Rendezvous> make_rendezvous(Wire& wire);

}  // namespace hccl_like
