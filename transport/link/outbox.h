#pragma once
// The sending half of a Link: which frame goes next, and how far it has gone.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/link/link.h"
#include "transport/message/fifo.h"
#include "transport/message/frame.h"
#include "transport/message/pool.h"
#include "transport/message/tag_table.h"
#include "transport/rendezvous/rendezvous.h"

namespace hccl_like {

// One frame is on the wire at any moment. The next is chosen when it is through: control frames
// first, then eager messages, and the parts of long messages in turn, one after every kEagerRun
// eager messages at the latest.
class Outbox {
 public:
  Outbox(Wire& wire, Rendezvous& rendezvous, const LinkOptions& options,
         Fifo<Link::Mismatch>& mismatches);

  void post(Send& send);
  // A frame without payload.
  void push(const FrameHeader& control);
  // The same with a descriptor as its payload.
  void push(FrameHeader control, const Descriptor& descriptor);
  void push_abort(uint64_t communicator, std::string_view reason);
  // The peer asks for a message that may have been announced, or not even posted yet.
  void ready(const FrameHeader& header, const Descriptor* into);
  // A message that its receiver waits for goes through the wire after all.
  void send_as_data(Send& send);
  // All of a message has left, by whichever way.
  static void done(Send& send);
  // Takes back an eager message; false if that was possible, true if it counts as sent.
  bool withdraw(Send& send);
  void cancel(uint64_t communicator);

  // True if the wire took anything.
  bool progress();
  // Something would go out at once if the wire took it.
  bool wants_to_write() const noexcept;
  // Nothing is left, not even messages that wait for their receiver.
  bool empty() const noexcept { return !wants_to_write() && waiting_ == 0 && parked_.empty(); }
  // A message was announced whose receiver has not asked for it yet.
  bool awaits_ready() const noexcept { return waiting_ > 0; }

 private:
  struct Control {
    FrameHeader header;
    std::string text;  // or:
    Descriptor descriptor;
  };
  // An announced message, or, with a null `send`, the peer's request for one.
  struct Pending {
    Send* send = nullptr;
    uint64_t fingerprint = 0;
    uint64_t bytes = 0;
    std::optional<uint32_t>
        slot;  // of an announced message, if it may go another way than the wire
    ExportedRange* into = nullptr;  // where the peer wants it; one of ranges_
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
  void finish_from_copy();
  void report_mismatch(const Send& send, uint64_t fingerprint, uint64_t bytes);

  Wire& wire_;
  Rendezvous& rendezvous_;
  const size_t eager_bytes_;
  const size_t turn_bytes_;
  const size_t alignment_;
  Fifo<Link::Mismatch>& mismatches_;

  Fifo<Control> control_;
  Fifo<Send*> eager_;
  Fifo<Send*> data_;  // asked for; each in turn sends a frame
  Fifo<Send*>
      parked_;  // of a device, and asked for: they wait for a slot, as they have no other way
  TagTable<Pending> pending_;
  Pool<ExportedRange> ranges_;
  size_t waiting_ = 0;    // how many of pending_ have a send
  size_t eager_run_ = 0;  // eager messages since the last data frame

  // The frame being written.
  bool busy_ = false;
  // The header and the gap after it, zeros.
  struct Head {
    FrameHeader header;
    std::array<std::byte, kMostGap> gap{};
  };
  Head head_;
  size_t head_bytes_ = 0, head_left_ = 0;
  uint64_t frames_end_ = 0;  // of those begun so far, in bytes from the beginning
  size_t payload_left_ = 0;
  Send* send_ = nullptr;          // whose payload it is; else
  std::vector<std::byte> bytes_;  // it is the end of this
};

}  // namespace hccl_like
