#pragma once
// A rendezvous in which the receiver reads the sender's memory: directly into the destination or,
// for reductions, into a few buffers that stay in the cache.
//
// The sender exposes its memory and announces the address. The receiver reads, then tells kTaken. A
// sender that gives up tells kStop. The receiver then counts no further read as done, and answers
// kStopped when no read is in flight. A receiver that gives up waits for its own reads.
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
  // `timeout`: how long to wait for a peer that does not release memory. Afterwards the peer's
  // reads are made to fail, and own reads are aborted together with the wire.
  explicit RemoteRendezvous(RemoteMemory& memory,
                            std::chrono::milliseconds timeout = std::chrono::seconds(1));
  ~RemoteRendezvous() override;

  // A read needs a single source piece.
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
  // Maximum reads in flight per message, and bytes per read.
  static constexpr size_t kAhead = 4;
  static constexpr size_t kPart = 256 << 10;
  struct alignas(4096) Buffer {
    std::byte bytes[kPart];
  };
  // Slot plus kSlots times the number of earlier messages in the slot, so that late notes are
  // known.
  static uint32_t slot_of(uint32_t message) { return message % kSlots; }

  struct Offer {
    Send* send = nullptr;
    uint32_t message = 0;
    RemotePlace place;
    bool begun = false;  // the receiver reads or will read soon
    bool shown = false;
    bool left = true;  // by the receiver: the slot may be reused
    bool let_go = false;
    bool free() const { return send == nullptr && left; }
  };
  struct Part {
    uint32_t read = 0;
    size_t bytes = 0;
    const std::byte* buffer = nullptr;  // null: the read goes directly to the destination
  };
  struct Pull {
    Recv* recv = nullptr;
    uint32_t message = 0;
    RemotePlace from;
    size_t asked = 0;  // bytes requested
    size_t read = 0;
    std::array<Part, kAhead> parts;  // in flight, oldest first
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
  const std::chrono::milliseconds timeout_;
  bool usable_ = true;             // no read has failed
  std::optional<Deadline> awake_;  // ends the busy polling; set while reads make no progress
  std::array<Offer, kSlots> offers_;
  std::array<Pull, kSlots> pulls_;
  std::array<uint32_t, kSlots> seen_{};     // the last message of a slot that was begun or left
  std::array<uint32_t, kSlots> stopped_{};  // the last message stopped before this end saw it
  std::unique_ptr<Buffer[]> buffers_;       // kAhead buffers, used by one message at a time
  const Pull* owner_ = nullptr;             // user of the buffers
};

}  // namespace hccl_like
