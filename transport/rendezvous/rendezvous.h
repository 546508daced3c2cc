#pragma once
// The way of long messages beside the wire: nothing goes through it but where their memory lies.
// There are two, by what a wire offers: memory that both ends map (shared_rendezvous.h), and a
// peer's memory that can be read (remote_rendezvous.h).
//
// The sender takes a slot and announces it along with its memory; the receiver answers with its
// own. When the message has moved both are done, and neither may let its memory go before that: an
// end that gives up waits until the other has let go.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "device/device.h"
#include "transport/message/fifo.h"
#include "transport/message/message.h"
#include "transport/wire/wire.h"

namespace hccl_like {

// Used by one thread at a time, as the link that it belongs to.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  Rendezvous() = default;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Whether a message may go this way as far as this end is concerned.
  virtual bool can_send(const Send& send) const = 0;
  virtual bool can_receive(const Recv& recv) const = 0;
  // The memory of a receive, for its sender. Only after can_receive().
  virtual ExportedRange receive_range(const Recv& recv) const = 0;

  // Memory of devices that host code cannot reach: whether it goes this way, as RemoteMemory has
  // it.
  virtual bool reaches_devices() const { return false; }
  virtual bool prepare(const std::byte*, size_t) { return false; }

  // --- sends ---
  // Whether offer() would have a slot now.
  virtual bool has_room() const { return true; }
  // A slot for a message that it takes; nothing if all are in use.
  virtual std::optional<uint32_t> offer(Send& send) = 0;
  // The memory of an offered message, for its receiver.
  virtual ExportedRange send_range(uint32_t slot) const = 0;
  // The receiver has told where its memory lies.
  virtual void begin_send(uint32_t slot, const ExportedRange& into) = 0;
  // The message goes through the wire, as the receiver's memory cannot be reached, or is not sent
  // at all.
  virtual void retract(uint32_t slot) = 0;

  // --- receives ---
  // Whether a peer may have announced this slot.
  virtual bool may_begin(uint64_t slot) const = 0;
  // The sender has announced its memory, and is told of the receive's own.
  virtual void begin_receive(Recv& recv, uint32_t slot, const ExportedRange& from) = 0;
  // The announced message is dropped, or comes through the wire.
  virtual void decline(uint32_t slot) = 0;
  // The same for a receive that has begun; nothing if it has not.
  virtual void end_receive(const Recv& recv) = 0;

  // Nothing for progress() to do. Asked at every turn of every link, so it is no call.
  bool idle() const { return active_ == 0; }
  // Moves a part each way at most; true if anything changed. Without `copy` it only notices what is
  // complete.
  virtual bool progress(bool copy) = 0;
  // What progress() found: complete; or to go through the wire because one end cannot reach the
  // other's memory.
  Send* take_sent() { return take(sent_); }
  Recv* take_received() { return take(received_); }
  Send* take_refused() { return take(refused_); }

  // A message that was offered is not through.
  virtual bool sends() const = 0;
  // Something can be done now: asked before a sleep.
  virtual bool could_advance() = 0;
  // Gives the messages of a communicator up, or all of them. `peer_lives`: it may be at work on
  // one.
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

// Below this the wire is as fast.
inline constexpr size_t kLeastRendezvous = 32 << 10;
// The same of memory that both ends map.
inline constexpr size_t kLeastMapped = 64 << 10;

// The one that a wire has what it takes for. The wire must outlive it.
std::unique_ptr<Rendezvous> make_rendezvous(Wire& wire);

}  // namespace hccl_like
