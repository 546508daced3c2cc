#pragma once
// The way of long messages between memory that both ends can reach: nothing goes through the wire but where it lies.
//
// The sender takes a slot and announces it along with its memory; the receiver answers with its own. From then on each end
// copies blocks when it is driven (rendezvous_slot.h), and both are done when all blocks are. Neither may let its memory go
// before that: an end that gives up closes the slot and waits until the other has finished the block it was at.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/fifo.h"
#include "transport/frame.h"
#include "transport/link.h"
#include "transport/peer_memory.h"
#include "transport/rendezvous_slot.h"
#include "transport/wire.h"

namespace hccl_like {

// Used by one thread at a time, as the link that it belongs to. Without a workspace of the wire it takes nothing.
class Rendezvous {
 public:
  explicit Rendezvous(Wire& wire);
  ~Rendezvous();

  // Whether a message may go this way as far as this end is concerned.
  bool takes(const Send& send) const { return takes(send, send.from); }
  bool takes(const Recv& recv) const { return recv.combine == nullptr && takes(recv, recv.into); }

  // --- sends ---
  // A slot for a message that takes(); nothing if all are in use.
  std::optional<uint32_t> offer(Send& send);
  // The receiver has told where its memory lies.
  void begin(uint32_t slot, const ExportedRange& into);
  // The receiver has told that its memory cannot be reached: the message goes through the wire.
  void retract(uint32_t slot);

  // --- receives ---
  // Whether a peer may have announced this slot.
  bool may_begin(uint64_t slot) const;
  // The sender has announced its memory, and is told of the receive's own.
  void begin(Recv& recv, uint32_t slot, const ExportedRange& from);
  // The announced message is dropped, or goes through the wire.
  void leave(uint32_t slot);
  // The same for a receive that had begun.
  void leave(const Recv& recv);

  // Copies a block each way at most; true if anything changed. Without `copy` it only notices what is complete.
  bool progress(bool copy);
  // What progress() found: complete; or to go through the wire because neither end reaches the other's memory.
  Send* take_sent() { return take(sent_); }
  Recv* take_received() { return take(received_); }
  Send* take_refused() { return take(refused_); }

  // A message that was offered is not through.
  bool sends() const;
  // Something can be done now: asked before a sleep.
  bool could_advance() const;
  // Gives the messages of a communicator up, or all of them. `peer_lives`: it may be at work on one.
  void cancel(std::optional<uint64_t> communicator, bool peer_lives);

 private:
  static constexpr size_t kSlots = 12;
  // A message under way.
  template <class OneEnd>
  struct Active {
    OneEnd* message = nullptr;  // null: not in use on this side
    bool used = false;          // the slot was, so the receiver must have left it
    bool begun = false;         // the other end has told where its memory lies
    std::byte* own = nullptr;
    PeerMemory::View other;  // null data: cannot be reached
  };
  template <class OneEnd>
  using Table = std::array<Active<OneEnd>, kSlots>;

  bool takes(const Message& message, const Pieces& pieces) const;
  Claims claims(const Active<Send>& active) const;
  Claims claims(const Active<Recv>& active) const;
  template <class OneEnd>
  void begin(Active<OneEnd>& active, std::byte* own, const ExportedRange& range);
  template <class OneEnd>
  bool advance(Active<OneEnd>& active, bool copy);
  template <class OneEnd>
  bool could_advance(const Active<OneEnd>& active) const;
  template <class OneEnd>
  void give_up(Table<OneEnd>& table, std::optional<uint64_t> communicator, bool peer_lives);
  void done(Send& send);
  void done(Recv& recv);
  void refused(Send& send);
  void refused(Recv& recv);
  void tell_peer();
  void end(Active<Send>& active);
  void end(Active<Recv>& active);
  template <class T>
  static T* take(Fifo<T*>& fifo) {
    return fifo.empty() ? nullptr : fifo.pop();
  }

  Wire& wire_;
  RendezvousSlot* own_ = nullptr;    // of sends
  RendezvousSlot* peers_ = nullptr;  // of receives
  size_t slots_ = 0;
  size_t active_ = 0;
  Table<Send> sends_;
  Table<Recv> recvs_;
  Fifo<Send*> sent_, refused_;
  Fifo<Recv*> received_;
};

}  // namespace hccl_like
