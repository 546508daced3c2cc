#pragma once
// The receiving half of a Link: whose bytes these are, and where they go.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/link/link.h"
#include "transport/link/outbox.h"
#include "transport/message/fifo.h"
#include "transport/message/frame.h"
#include "transport/message/pool.h"
#include "transport/message/tag_table.h"
#include "transport/rendezvous/rendezvous.h"

namespace hccl_like {

// A message that came, or was announced, before its Recv was posted.
struct EarlyMessage {
  FrameHeader header;
  Descriptor from;  // if the announcement had one
  std::unique_ptr<std::byte[]> data;
  size_t capacity = 0;
  size_t filled = 0;
  // What it takes of the limit, so that announcements count, too.
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
        Fifo<Link::Mismatch>& mismatches);

  void post(Recv& recv);
  // Gives up a caller-driven Recv that is not done. What has arrived of its message is kept for the
  // next one.
  void withdraw(Recv& recv);
  void cancel(uint64_t communicator);
  // All of a message has arrived, by whichever way.
  void done(Recv& recv);

  // True if anything moved. Stops at the first thing that a link cannot have sent, and when `until`
  // is done.
  bool progress(const Recv* until = nullptr);
  // The part of progress() that needs no wire: threads over messages that came before their Recv.
  bool deliver_early();

  bool arrived(const Tag& tag, size_t* bytes) const;
  std::optional<Link::Mismatch> find_stray(uint64_t communicator, const Link::Made& made) const;
  std::optional<AbortNotice> take_abort();
  bool has_aborts() const noexcept { return !aborts_.empty(); }
  std::optional<CallNotice> take_call();
  bool has_calls() const noexcept { return !calls_.empty(); }
  bool peer_said_goodbye() const noexcept { return goodbye_; }
  // Null while everything read made sense.
  const Error* failure() const noexcept { return failure_ ? &*failure_ : nullptr; }

  // Something can be done without further bytes.
  bool has_work() const noexcept { return !deliverable_.empty(); }
  size_t eager_bytes() const noexcept { return eager_bytes_; }
  // The early messages fill their limit, and nothing is wanted that may come behind them: it waits
  // for a Recv.
  bool stalled() const noexcept { return stalled_; }
  // The next early message is taken whatever the limit says.
  void allow_one_more() noexcept { one_more_ = true; }

 private:
  // At least one of the two is set.
  struct Incoming {
    Recv* recv = nullptr;
    EarlyMessage* early = nullptr;
    bool asked = false;  // a ready was sent, or is not waited for
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

  TagTable<Incoming> incoming_;
  Fifo<Tag> deliverable_;  // posted, and here already
  std::vector<uint64_t> cancelled_;
  Fifo<AbortNotice> aborts_;
  Fifo<CallNotice> calls_;
  Pool<EarlyMessage> early_pool_;
  size_t early_bytes_ = 0;
  bool stalled_ = false;
  bool one_more_ = false;
  bool goodbye_ = false;
  std::optional<Error> failure_;

  // The frame being read. Its payload goes to one of these, or nowhere.
  bool busy_ = false;
  FrameHeader header_;
  Descriptor descriptor_;
  size_t left_ = 0;
  uint64_t frames_end_ = 0;  // of those begun so far, in bytes from the beginning
  Recv* recv_ = nullptr;
  EarlyMessage* early_ = nullptr;
  std::string text_;
};

}  // namespace hccl_like
