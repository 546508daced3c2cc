#pragma once
// Receiving half of a Link: matches frames with receives and moves their payloads.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/link/link.h"
#include "transport/link/outbox.h"
#include "transport/link/traffic.h"
#include "transport/message/fifo.h"
#include "transport/message/frame.h"
#include "transport/message/pool.h"
#include "transport/message/tag_table.h"
#include "transport/rendezvous/rendezvous.h"

namespace hccl_like {

// A message that arrived or was announced before its Recv was posted.
struct EarlyMessage {
  FrameHeader header;
  Descriptor from;  // if the announcement has one
  std::unique_ptr<std::byte[]> data;
  size_t capacity = 0;
  size_t filled = 0;
  // Share of the limit. Announcements count, too.
  static size_t cost(const FrameHeader& header) {
    return header.kind == FrameKind::kEager ? 128 + header.payload : 384;
  }
  size_t cost() const { return cost(header); }
  bool announced() const { return header.kind == FrameKind::kAnnounce; }
  bool has_descriptor() const { return announced() && header.payload > 0; }
  bool whole() const { return header.kind == FrameKind::kEager && filled == header.bytes; }
};

class Inbox {
 public:
  Inbox(Wire& wire, Outbox& outbox, Rendezvous& rendezvous, const LinkOptions& options,
        Fifo<Link::Mismatch>& mismatches, Traffic& traffic);

  void post(Recv& recv);
  // Withdraws an incomplete caller-driven Recv. The next Recv gets the data that have arrived.
  void withdraw(Recv& recv);
  void cancel(uint64_t communicator);
  // Completes a message after the transfer, on any path.
  void done(Recv& recv);

  // True if anything moved. Stops at a protocol violation and when `until` is done.
  bool progress(const Recv* until = nullptr);
  // The part of progress() that needs no wire: completes receives whose messages arrived early.
  bool deliver_early();

  bool arrived(const Tag& tag, size_t* bytes) const;
  std::optional<Link::Mismatch> find_stray(uint64_t communicator, const Link::Made& made) const;
  std::optional<AbortNotice> take_abort();
  bool has_aborts() const noexcept { return !aborts_.empty(); }
  std::optional<CallNotice> take_call();
  bool has_calls() const noexcept { return !calls_.empty(); }
  bool peer_said_goodbye() const noexcept { return goodbye_; }
  const Error* failure() const noexcept { return failure_ ? &*failure_ : nullptr; }

  // Whether progress is possible without further bytes.
  bool has_work() const noexcept { return !deliverable_.empty(); }
  size_t eager_bytes() const noexcept { return eager_bytes_; }
  // Early messages fill their limit, and no receive or request waits for data behind them.
  bool stalled() const noexcept { return stalled_; }
  // Accepts the next early message regardless of the limit.
  void allow_one_more() noexcept { one_more_ = true; }

 private:
  struct Incoming {
    Recv* recv = nullptr;
    EarlyMessage* early = nullptr;
    bool asked = false;  // a request was sent or is not needed
  };

  static constexpr const char* kSlotInUse = "a slot that is in use";

  bool begin_frame();
  bool read_descriptor();
  bool begin_eager(const FrameHeader& header);
  bool awaits() const;
  void begin_announced(const FrameHeader& header);
  void keep_announced(const FrameHeader& header, Incoming& incoming);
  void meet(Recv& recv, const Descriptor& from);
  void begin_data(const FrameHeader& header);
  bool read_payload();
  size_t read_into(Recv& recv);
  size_t read_past_caches(std::span<std::byte> into);
  size_t combine_into(Recv& recv);
  void end_frame();
  void deliver(Tag tag);

  void ask_for(Recv& recv);
  bool matches(const Recv& recv, const FrameHeader& header);
  bool is_cancelled(uint64_t communicator) const;
  EarlyMessage* new_early(const FrameHeader& header);
  void free_early(EarlyMessage* early);
  void fail(const char* what);

  Wire& wire_;
  Outbox& outbox_;
  Rendezvous& rendezvous_;
  const size_t eager_bytes_;
  const size_t turn_bytes_;
  const size_t least_past_caches_;
  const size_t early_limit_;
  const size_t alignment_;
  Fifo<Link::Mismatch>& mismatches_;
  Traffic& traffic_;

  TagTable<Incoming> incoming_;
  Fifo<Tag> deliverable_;  // posted and already arrived
  std::vector<uint64_t> cancelled_;
  Fifo<AbortNotice> aborts_;
  Fifo<CallNotice> calls_;
  Pool<EarlyMessage> early_pool_;
  size_t early_bytes_ = 0;
  bool stalled_ = false;
  bool one_more_ = false;
  bool goodbye_ = false;
  std::optional<Error> failure_;

  // The frame being read. Its payload goes to recv_ or early_, or is dropped.
  bool busy_ = false;
  FrameHeader header_;
  Descriptor descriptor_;
  size_t left_ = 0;
  uint64_t frames_end_ = 0;  // stream offset of the end of the last frame begun
  Recv* recv_ = nullptr;
  EarlyMessage* early_ = nullptr;
  std::string text_;
};

}  // namespace hccl_like
