#pragma once
// Sending half of a Link: chooses the next frame and tracks its progress.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/link/link.h"
#include "transport/link/traffic.h"
#include "transport/message/fifo.h"
#include "transport/message/frame.h"
#include "transport/message/pool.h"
#include "transport/message/tag_table.h"
#include "transport/rendezvous/rendezvous.h"

namespace hccl_like {

// One frame is on the wire at a time. Order: control frames, eager messages, then parts of long
// messages in turn. After kEagerRun eager messages at most, one part of a long message goes.
class Outbox {
 public:
  Outbox(Wire& wire, Rendezvous& rendezvous, const LinkOptions& options,
         Fifo<Link::Mismatch>& mismatches, Traffic& traffic);

  void post(Send& send);
  void push(const FrameHeader& control);
  void push(FrameHeader control, const Descriptor& descriptor);
  void push_abort(uint64_t communicator, std::string_view reason);
  // The peer requests a message that may be announced or not posted yet.
  void ready(const FrameHeader& header, const Descriptor* into);
  // Sends a requested message through the wire instead of the rendezvous.
  void send_as_data(Send& send);
  // Completes a message after the transfer, on any path.
  void done(Send& send);
  // Completes the messages whose memory the wire still needs: it copies what it needs. Returns
  // false if there were none.
  bool settle();
  // Takes back an eager message. Returns false on success, true if the message counts as sent.
  bool withdraw(Send& send);
  void cancel(uint64_t communicator);

  bool progress();
  // Whether a frame could go out now if the wire accepted bytes.
  bool wants_to_write() const noexcept;
  // Nothing is left, including messages that wait for their receiver.
  bool empty() const noexcept {
    return !wants_to_write() && waiting_ == 0 && parked_.empty() && accepted_.empty();
  }
  // Whether an announced message has not been requested yet.
  bool awaits_ready() const noexcept { return waiting_ > 0; }

 private:
  struct Control {
    FrameHeader header;
    std::string text;  // or:
    Descriptor descriptor;
  };
  // An announced message, or the peer's request for a message (`send` is null).
  struct Pending {
    Send* send = nullptr;
    uint64_t fingerprint = 0;
    uint64_t bytes = 0;
    std::optional<uint32_t> slot;   // of an announced message, if the rendezvous may carry it
    ExportedRange* into = nullptr;  // destination at the peer; one of ranges_
  };

  // A message that the wire has accepted and whose memory the wire still needs.
  struct Accepted {
    Send* send = nullptr;
    uint64_t end = 0;                                   // stream offset of its end
    std::chrono::steady_clock::time_point copied_at{};  // then the wire copies the rest
  };

  void announce(Send& send, std::optional<uint32_t> slot);
  Descriptor describe(uint32_t slot) const {
    return {.slot = slot, .range = rendezvous_.send_range(slot)};
  }
  void start(Send& send, std::optional<uint32_t> slot, const ExportedRange* into);
  void offer_parked();
  bool begin_frame();
  void begin_message(FrameKind kind, Send& send, size_t payload);
  void begin_head();
  size_t write_some();
  void end_frame();
  bool complete_confirmed();
  void finish_from_copy();
  void report_mismatch(const Send& send, uint64_t fingerprint, uint64_t bytes);

  Wire& wire_;
  Rendezvous& rendezvous_;
  const size_t eager_bytes_;
  const size_t turn_bytes_;
  const size_t alignment_;
  Fifo<Link::Mismatch>& mismatches_;
  Traffic& traffic_;

  Fifo<Control> control_;
  Fifo<Send*> eager_;
  Fifo<Send*> data_;    // requested; they take turns, one frame each
  Fifo<Send*> parked_;  // requested, in device memory; wait for a slot: they have no other path
  Fifo<Accepted> accepted_;
  TagTable<Pending> pending_;
  Pool<ExportedRange> ranges_;
  size_t waiting_ = 0;    // entries of pending_ that have a send
  size_t eager_run_ = 0;  // eager messages since the last data frame

  bool busy_ = false;
  struct Head {
    FrameHeader header;
    std::array<std::byte, kMostGap> gap{};
  };
  Head head_;
  size_t head_bytes_ = 0, head_left_ = 0;
  uint64_t frames_end_ = 0;  // stream offset of the end of the last frame begun
  size_t payload_left_ = 0;
  Send* send_ = nullptr;          // source of the payload; if null:
  std::vector<std::byte> bytes_;  // source of the payload is the end of this
};

}  // namespace hccl_like
