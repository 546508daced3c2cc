#pragma once
// A rendezvous of two ends on one host that map each other's memory.
//
// From when the receiver has answered each end copies blocks when it is driven (rendezvous_slot.h),
// and both are done when all blocks are. An end that gives up closes the slot and waits until the
// other has finished the block it was at. A receiver whose sender was stopped in the middle of one
// keeps its memory until the sender has finished or has died (kept_memory.h).
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "transport/rendezvous/rendezvous.h"
#include "transport/rendezvous/rendezvous_slot.h"
#include "transport/same_host/peer_memory.h"

namespace hccl_like {

// Without a workspace of the wire it takes nothing.
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
  // A message under way.
  template <class OneEnd>
  struct Active {
    OneEnd* message = nullptr;  // null: not in use on this side
    bool used = false;          // the slot was, so the receiver must have left it
    bool begun = false;         // the other end has told where its memory lies
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

  Wire& wire_;
  std::shared_ptr<const void> shared_;  // the slots' memory
  RendezvousSlot* own_ = nullptr;       // of sends
  RendezvousSlot* peers_ = nullptr;     // of receives
  size_t slots_ = 0;
  Table<Send> sends_;
  Table<Recv> recvs_;
  size_t sending_ = 0;  // of sends_
};

}  // namespace hccl_like
