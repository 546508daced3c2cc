#pragma once
// A rendezvous in which the receiver reads the sender's memory: straight into the destination, or,
// of what is to be combined, into a few pieces of memory that stay in the cache.
//
// The sender shows its memory and announces where; the receiver reads, and tells that the message
// is taken. A sender that gives up tells the receiver to stop and is answered when no read is under
// way any more; from when the receiver has heard of it, it counts no read as done. A receiver that
// gives up waits for its own reads.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/base/deadline.h"
#include "transport/rendezvous/rendezvous.h"
#include "transport/wire/remote_memory.h"

namespace hccl_like {

class RemoteRendezvous final : public Rendezvous {
 public:
  // `backoff`: for a peer that does not let go. Its reads are made to fail then, and ours to end
  // with the wire.
  explicit RemoteRendezvous(RemoteMemory& memory,
                            std::chrono::milliseconds backoff = std::chrono::seconds(1));
  ~RemoteRendezvous() override;

  // Reading goes from one piece.
  bool can_send(const Send& send) const override {
    return usable_ && send.bytes >= kLeastRendezvous && send.from.size() == 1;
  }
  bool can_receive(const Recv& recv) const override {
    return usable_ && recv.bytes >= kLeastRendezvous;
  }
  ExportedRange receive_range(const Recv&) const override { return {}; }
  bool reaches_devices() const override { return usable_ && memory_.reaches_devices(); }
  bool prepare(const std::byte* data, size_t bytes) override {
    return reaches_devices() && memory_.prepare(data, bytes);
  }
  bool has_room() const override;
  std::optional<uint32_t> offer(Send& send) override;
  ExportedRange send_range(uint32_t message) const override;
  void begin_send(uint32_t message, const ExportedRange&) override;
  void retract(uint32_t message) override;
  bool may_begin(uint64_t message) const override;
  void begin_receive(Recv& recv, uint32_t message, const ExportedRange& from) override;
  void decline(uint32_t message) override;
  void end_receive(const Recv& recv) override;
  bool progress(bool copy) override;
  bool sends() const override;
  bool could_advance() override;
  void cancel(std::optional<uint64_t> communicator, bool peer_lives) override;

 private:
  static constexpr size_t kSlots = RemoteMemory::kSlots;
  // Reads of a message under way, and how much each takes.
  static constexpr size_t kAhead = 4;
  static constexpr size_t kPart = 256 << 10;
  struct alignas(4096) Buffer {
    std::byte bytes[kPart];
  };
  // A message is known to both ends by its slot and by how many were in it before: a note may come
  // late.
  static uint32_t slot_of(uint32_t message) { return message % kSlots; }

  struct Offer {
    Send* send = nullptr;
    uint32_t message = 0;
    RemotePlace place;
    bool begun = false;  // the receiver reads, or will soon
    bool shown = false;
    bool left = true;  // by the receiver, so that the slot may be used again
    bool let_go = false;
    bool free() const { return send == nullptr && left; }
  };
  struct Part {
    uint32_t read = 0;
    size_t bytes = 0;
    const std::byte* buffer = nullptr;  // null: read to where it belongs
  };
  struct Pull {
    Recv* recv = nullptr;
    uint32_t message = 0;
    RemotePlace from;
    size_t asked = 0;  // bytes
    size_t read = 0;
    std::array<Part, kAhead> parts;  // under way, the oldest first
    size_t first = 0, under_way = 0;
    bool stopped = false, failed = false;
  };

  bool found() const { return !sent_.empty() || !refused_.empty() || !received_.empty(); }
  bool listen();
  void heard_left(uint32_t message, bool taken);
  void heard_stop(uint32_t message);
  void end(Offer& offer);
  void hide(Offer& offer);
  void end(Pull& pull, RemoteMemory::Told told);
  bool advance(Pull& pull, bool go_on);
  bool finish_parts(Pull& pull);
  bool ask(Pull& pull);
  void give_up(Pull& pull);
  std::byte* buffer(const Pull& pull);

  RemoteMemory& memory_;
  const std::chrono::milliseconds backoff_;
  bool usable_ = true;             // reads have not failed
  std::optional<Deadline> awake_;  // since nothing moved while something is read
  std::array<Offer, kSlots> offers_;
  std::array<Pull, kSlots> pulls_;
  std::array<uint32_t, kSlots> seen_{};     // the last message of a slot that was begun or left
  std::array<uint32_t, kSlots> stopped_{};  // the last that was stopped before it was seen
  std::unique_ptr<Buffer[]> buffers_;  // kAhead for all, taken in turn by one message at a time
  const Pull* owner_ = nullptr;        // of the buffers
};

}  // namespace hccl_like
