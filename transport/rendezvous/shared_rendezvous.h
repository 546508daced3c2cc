#pragma once
// A rendezvous of two processes on one host that map each other's memory.
//
// Once the receiver has answered, each driver copies blocks (rendezvous_slot.h). Both ends complete
// when all blocks are copied. An end that gives up closes the slot and waits until the other end
// has finished its current block. If the sender was stopped inside a block, the receiver keeps its
// memory until the sender finishes or dies (kept_memory.h).
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "transport/rendezvous/rendezvous.h"
#include "transport/rendezvous/rendezvous_slot.h"
#include "transport/same_host/peer_memory.h"
#include "transport/wire/same_host_peer.h"

namespace hccl_like {

// Accepts no messages if the wire has no workspace.
class SharedRendezvous final : public Rendezvous {
 public:
  explicit SharedRendezvous(Wire& wire);
  ~SharedRendezvous() override;

  bool can_send(const Send& send) const override { return is_mapped(send, send.from); }
  bool can_receive(const Recv& recv) const override {
    return recv.combine == nullptr && is_mapped(recv, recv.into);
  }
  ExportedRange receive_range(const Recv& recv) const override;
  std::optional<uint32_t> offer(Send& send) override;
  ExportedRange send_range(uint32_t slot) const override;
  void begin_send(uint32_t slot, const ExportedRange& into) override;
  void retract(uint32_t slot) override;
  bool may_begin(uint64_t slot) const override;
  void begin_receive(Recv& recv, uint32_t slot, const ExportedRange& from) override;
  void decline(uint32_t slot) override;
  void end_receive(const Recv& recv) override;
  bool progress(bool copy) override;
  bool sends() const override { return sending_ > 0; }
  bool could_advance() override;
  void cancel(std::optional<uint64_t> communicator, bool peer_lives) override;

 private:
  static constexpr size_t kSlots = 12;
  template <class OneEnd>
  struct Active {
    OneEnd* message = nullptr;  // null: unused on this side
    bool used = false;          // the slot was used, so the receiver must leave it before reuse
    bool begun = false;         // the other end has sent its address
    std::byte* own = nullptr;
    PeerMemory::View other;  // null data: cannot be mapped
    bool reaches() const { return other.data != nullptr; }
  };
  template <class OneEnd>
  using Table = std::array<Active<OneEnd>, kSlots>;

  bool is_mapped(const Message& message, const Pieces& pieces) const;
  static ExportedRange named(const SharedPlace& place);
  Claims claims(const Active<Send>& active) const;
  Claims claims(const Active<Recv>& active) const;
  template <class OneEnd>
  void begin(Active<OneEnd>& active, std::byte* own, const ExportedRange& range);
  void copy(const Active<Send>& active, Block block);
  void copy(const Active<Recv>& active, Block block);
  template <class OneEnd>
  bool copy_block(Active<OneEnd>& active, uint32_t number);
  template <class OneEnd>
  bool advance(Active<OneEnd>& active, bool copy);
  template <class OneEnd>
  bool could_advance(const Active<OneEnd>& active) const;
  template <class OneEnd>
  void give_up(Table<OneEnd>& table, std::optional<uint64_t> communicator, bool peer_lives);
  void keep(const Active<Send>&) const {}  // the peer only reads
  void keep(const Active<Recv>& active) const;
  void done(Send& send);
  void done(Recv& recv);
  void refused(Send& send);
  void refused(Recv& recv);
  void tell_peer();
  void end(Active<Send>& active);
  void end(Active<Recv>& active);

  const PeerCommons* commons() const { return peer_ == nullptr ? nullptr : peer_->commons(); }

  Wire& wire_;
  SameHostPeer* const peer_;            // null: the wire has no memory that both ends map
  std::shared_ptr<const void> shared_;  // keeps the slots mapped
  RendezvousSlot* own_ = nullptr;       // of sends
  RendezvousSlot* peers_ = nullptr;     // of receives
  size_t slots_ = 0;
  Table<Send> sends_;
  Table<Recv> recvs_;
  size_t sending_ = 0;  // of sends_
};

}  // namespace hccl_like
