#pragma once
// A rendezvous of two ends on one host that reach each other's memory: they map it, or, if it is private, the receiver has the
// kernel read it, which is one copy where the wire takes two.
//
// From when the receiver has answered each end copies blocks when it is driven (rendezvous_slot.h), and both are done when
// all blocks are. An end that gives up closes the slot and waits until the other has finished the block it was at. A receiver whose
// sender was stopped in the middle of one keeps its memory until the sender has finished or has died (kept_memory.h).
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "transport/peer_memory.h"
#include "transport/rendezvous.h"
#include "transport/rendezvous_slot.h"

namespace hccl_like {

// Without a workspace of the wire it takes nothing.
class SharedRendezvous final : public Rendezvous {
 public:
  explicit SharedRendezvous(Wire& wire);
  ~SharedRendezvous() override;

  bool takes(const Send& send) const override { return takes(send, send.from); }
  bool takes(const Recv& recv) const override {
    return recv.combine == nullptr && takes(recv, recv.into);
  }
  // A copy by the kernel.
  bool is_a_matter_of_pace(const Recv& recv) const override { return !recv.place.range; }
  ExportedRange place(const Recv& recv) const override;
  bool lends(const Send& send) const override { return send.place.range != nullptr && takes(send); }
  std::optional<uint32_t> offer(Send& send) override;
  ExportedRange place(uint32_t slot) const override;
  void begin(uint32_t slot, const ExportedRange& into) override;
  void begin(uint32_t slot) override { sends_[slot].begun = true; }
  bool set_down(const Send& send) override;
  bool take_up(Send& send) override;
  void retract(uint32_t slot) override;
  bool may_begin(uint64_t slot) const override;
  bool begin(Recv& recv, uint32_t slot, const ExportedRange& from) override;
  void leave(uint32_t slot) override;
  void decline(uint32_t slot) override;
  void leave(const Recv& recv) override;
  bool progress(bool copy) override;
  bool sends() const override { return sending_ > 0; }
  bool could_advance() override;
  void cancel(std::optional<uint64_t> communicator, bool peer_lives) override;

 private:
  static constexpr size_t kSlots = 12;
  // A message under way.
  template <class OneEnd>
  struct Active {
    OneEnd* message = nullptr;  // null: not in use on this side, unless it was set down
    std::optional<Tag> set_down;
    bool in_use() const { return message != nullptr || set_down; }
    const Tag& tag() const { return set_down ? *set_down : message->tag; }
    bool used = false;   // the slot was, so the receiver must have left it
    bool begun = false;  // the other end has told where its memory lies
    std::byte* own = nullptr;
    PeerMemory::View other;           // null data: cannot be mapped
    std::optional<uint64_t> address;  // of the sender's private memory, in its process
    bool reaches() const { return other.data != nullptr || address; }
  };
  template <class OneEnd>
  using Table = std::array<Active<OneEnd>, kSlots>;

  bool takes(const Message& message, const Pieces& pieces) const;
  static ExportedRange named(const SharedPlace& place);
  Claims claims(const Active<Send>& active) const;
  Claims claims(const Active<Recv>& active) const;
  template <class OneEnd>
  bool begin(Active<OneEnd>& active, std::byte* own, const ExportedRange& range);
  bool open(Active<Send>& active, const ExportedRange& range);
  bool open(Active<Recv>& active, const ExportedRange& range);
  template <class OneEnd>
  bool map(Active<OneEnd>& active, const ExportedRange& range);
  bool copy(const Active<Send>& active, Block block);
  // False if the kernel cannot.
  bool copy(const Active<Recv>& active, Block block);
  template <class OneEnd>
  bool copy_block(Active<OneEnd>& active, uint32_t number);
  template <class OneEnd>
  void cannot_reach(Active<OneEnd>& active);
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
  std::optional<int> process_;          // the peer's, if the kernel reads its memory for this one
  std::shared_ptr<const void> shared_;  // the slots' memory
  RendezvousSlot* own_ = nullptr;       // of sends
  RendezvousSlot* peers_ = nullptr;     // of receives
  size_t slots_ = 0;
  Table<Send> sends_;
  Table<Recv> recvs_;
  size_t sending_ = 0;  // of sends_
};

}  // namespace hccl_like
