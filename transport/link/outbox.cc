#include "transport/link/outbox.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>

namespace hccl_like {
namespace {

constexpr size_t kEagerRun = 16;
// The memory of a message of this size or more stays until the message is sent (ConstRegion).
constexpr size_t kStays = 32 << 10;

FrameHeader header_of(FrameKind kind, const Send& send) {
  return {.kind = kind, .tag = send.tag, .fingerprint = send.fingerprint, .bytes = send.bytes};
}

// Whether the message gets a slot only after its receiver has requested it. If the wire cannot
// carry the message, unrequested messages must not take slots from requested ones. The receiver's
// memory may be device memory even if the sender's is not.
bool waits_to_be_asked(const Rendezvous& rendezvous, const Send& send) {
  return send.device || (rendezvous.reaches_devices() && rendezvous.can_send(send));
}

// How long a message waits until the peer's kernel has confirmed it, before the wire copies the
// rest. A copy takes as long, so a wait in vain doubles the cost at most. Copies of fewer bytes
// cost less than the system calls that look.
std::chrono::nanoseconds longest_wait(size_t bytes) {
  constexpr size_t kLeast = 256 << 10;
  constexpr size_t kBytesPerNanosecond = 4;
  return std::chrono::nanoseconds(bytes < kLeast ? 0 : bytes / kBytesPerNanosecond);
}

class Gather {
 public:
  bool full() const { return size_ == regions_.size(); }
  void add(const std::byte* data, size_t bytes, bool stays = false) {
    regions_[size_++] = {data, bytes, stays};
  }
  std::span<const ConstRegion> regions() const { return {regions_.data(), size_}; }

 private:
  std::array<ConstRegion, 8> regions_;
  size_t size_ = 0;
};

}  // namespace

Outbox::Outbox(Wire& wire, Rendezvous& rendezvous, const LinkOptions& options,
               Fifo<Link::Mismatch>& mismatches, Traffic& traffic)
    : wire_(wire),
      rendezvous_(rendezvous),
      eager_bytes_(std::min<uint64_t>(options.eager_bytes, kLongestEager)),
      turn_bytes_(options.turn_bytes),
      alignment_(wire.alignment()),
      mismatches_(mismatches),
      traffic_(traffic) {}

void Outbox::post(Send& send) {
  send.moved = 0;
  send.at = {};
  if (send.bytes <= eager_bytes_) return eager_.push(&send);
  const Pending* request = pending_.find(send.tag);
  // No offer if the peer has requested without a destination: it cannot be reached.
  std::optional<uint32_t> slot;
  if (!waits_to_be_asked(rendezvous_, send) && (request == nullptr || request->into != nullptr) &&
      rendezvous_.can_send(send))
    slot = rendezvous_.offer(send);
  if (request == nullptr) {
    pending_.insert(send.tag, {.send = &send, .slot = slot});
    ++waiting_;
    announce(send, slot);
    return;
  }
  const Pending asked = *request;
  pending_.erase(send.tag);
  if (asked.fingerprint == send.fingerprint && asked.bytes == send.bytes) {
    if (slot) announce(send, slot);
    start(send, slot, asked.into);
  } else {
    if (slot) rendezvous_.retract(*slot);
    report_mismatch(send, asked.fingerprint, asked.bytes);
    announce(send, std::nullopt);
  }
  ranges_.give_back(asked.into);
}

void Outbox::announce(Send& send, std::optional<uint32_t> slot) {
  const FrameHeader header = header_of(FrameKind::kAnnounce, send);
  if (slot)
    push(header, describe(*slot));
  else
    push(header);
}

void Outbox::start(Send& send, std::optional<uint32_t> slot, const ExportedRange* into) {
  if (!slot && into != nullptr && waits_to_be_asked(rendezvous_, send)) {
    parked_.push(&send);
    return offer_parked();
  }
  if (slot && into != nullptr) return rendezvous_.begin_send(*slot, *into);
  if (slot) rendezvous_.retract(*slot);
  send_as_data(send);
}

// Announces the message, perhaps a second time, with its memory.
void Outbox::offer_parked() {
  while (!parked_.empty() && rendezvous_.has_room()) {
    Send& send = *parked_.pop();
    const auto slot = rendezvous_.can_send(send) ? rendezvous_.offer(send) : std::nullopt;
    if (!slot) {
      send_as_data(send);
      continue;
    }
    announce(send, slot);
    rendezvous_.begin_send(*slot, {});
  }
}

void Outbox::send_as_data(Send& send) {
  if (!send.device) return data_.push(&send);
  mismatches_.push({.tag = send.tag, .unreachable = true});
}

void Outbox::push(const FrameHeader& control) {
  control_.push({.header = control, .text = {}, .descriptor = {}});
}

void Outbox::push(FrameHeader control, const Descriptor& descriptor) {
  control.payload = sizeof descriptor;
  control_.push({.header = control, .text = {}, .descriptor = descriptor});
}

void Outbox::push_abort(uint64_t communicator, std::string_view reason) {
  const std::string_view text = reason.substr(0, kLongestText);
  control_.push({.header = {.kind = FrameKind::kAbort,
                            .payload = static_cast<uint32_t>(text.size()),
                            .tag = {.communicator = communicator}},
                 .text = std::string(text),
                 .descriptor = {}});
}

void Outbox::ready(const FrameHeader& header, const Descriptor* into) {
  const Pending* found = pending_.find(header.tag);
  if (found == nullptr) {
    // Eager messages need no record of a request.
    if (header.bytes <= eager_bytes_) return;
    Pending request{.fingerprint = header.fingerprint, .bytes = header.bytes};
    if (into != nullptr) {
      request.into = ranges_.take();
      *request.into = into->range;
    }
    pending_.insert(header.tag, request);
    return;
  }
  if (found->send == nullptr) return;
  const Pending announced = *found;
  Send& send = *announced.send;
  pending_.erase(header.tag);
  --waiting_;
  if (header.fingerprint == send.fingerprint && header.bytes == send.bytes) {
    start(send, announced.slot, into != nullptr ? &into->range : nullptr);
  } else {
    if (announced.slot) rendezvous_.retract(*announced.slot);
    report_mismatch(send, header.fingerprint, header.bytes);
  }
}

void Outbox::report_mismatch(const Send& send, uint64_t fingerprint, uint64_t bytes) {
  mismatches_.push({.tag = send.tag,
                    .expected = send.fingerprint,
                    .received = fingerprint,
                    .expected_bytes = send.bytes,
                    .received_bytes = bytes,
                    .sends = true});
}

void Outbox::cancel(uint64_t communicator) {
  settle();
  const auto of_it = [&](const Send* send) { return send->tag.communicator == communicator; };
  control_.erase_if([&](const Control& control) {
    // Keep announcements with a slot: the peer must see them before the slot is free.
    return control.header.tag.communicator == communicator && control.header.payload == 0 &&
           (control.header.kind == FrameKind::kAnnounce ||
            control.header.kind == FrameKind::kReady || control.header.kind == FrameKind::kCall);
  });
  eager_.erase_if(of_it);
  data_.erase_if(of_it);
  parked_.erase_if(of_it);
  pending_.erase_if([&](const Tag& tag, const Pending& pending) {
    if (tag.communicator != communicator) return false;
    if (pending.send != nullptr) --waiting_;
    ranges_.give_back(pending.into);
    return true;
  });
  if (busy_ && send_ != nullptr && of_it(send_)) finish_from_copy();
}

bool Outbox::withdraw(Send& send) {
  if (settle() && send.done) return true;
  if (busy_ && send_ == &send) {
    finish_from_copy();
    done(send);
    return true;
  }
  eager_.erase_if([&](const Send* one) { return one == &send; });
  return false;
}

// Finishes the current frame from a copy, without its message.
void Outbox::finish_from_copy() {
  wire_.let_go(UINT64_MAX, /*copy=*/true);
  bytes_.resize(payload_left_);
  for (size_t done = 0; done < payload_left_;) {
    const Piece piece = send_->at.here(send_->from);
    const size_t part = std::min(piece.bytes, payload_left_ - done);
    std::memcpy(bytes_.data() + done, piece.data, part);
    send_->at.advance(send_->from, part);
    done += part;
  }
  send_ = nullptr;
}

bool Outbox::wants_to_write() const noexcept {
  return busy_ || !control_.empty() || !eager_.empty() || !data_.empty();
}

bool Outbox::progress() {
  offer_parked();
  size_t written = 0;
  while (written < turn_bytes_ && (busy_ || begin_frame())) {
    const size_t taken = write_some();
    if (taken == 0) break;
    written += taken;
  }
  const bool completed = complete_confirmed();
  return written > 0 || completed;
}

bool Outbox::begin_frame() {
  if (!control_.empty()) {
    const Control control = control_.pop();
    head_.header = control.header;
    begin_head();
    send_ = nullptr;
    bytes_.resize(payload_left_);
    const bool abort = head_.header.kind == FrameKind::kAbort;
    const void* payload =
        abort ? static_cast<const void*>(control.text.data()) : &control.descriptor;
    if (payload_left_ > 0) std::memcpy(bytes_.data(), payload, payload_left_);
  } else if (!eager_.empty() && (data_.empty() || eager_run_ < kEagerRun)) {
    ++eager_run_;
    Send& send = *eager_.pop();
    begin_message(FrameKind::kEager, send, send.bytes);
  } else if (!data_.empty()) {
    eager_run_ = 0;
    Send& send = *data_.pop();
    const size_t offset = send.moved;
    begin_message(FrameKind::kData, send, std::min<size_t>(kDataFrame, send.bytes - offset));
    head_.header.fingerprint = offset;
  }
  return busy_;
}

void Outbox::begin_message(FrameKind kind, Send& send, size_t payload) {
  head_.header = header_of(kind, send);
  head_.header.payload = static_cast<uint32_t>(payload);
  begin_head();
  send_ = &send;
}

void Outbox::begin_head() {
  const FrameHeader& header = head_.header;
  head_bytes_ = head_left_ = sizeof header + gap_after(header, frames_end_, alignment_);
  payload_left_ = header.payload;
  frames_end_ += head_bytes_ + payload_left_;
  busy_ = true;
}

size_t Outbox::write_some() {
  Gather gather;
  if (head_left_ > 0)
    gather.add(reinterpret_cast<const std::byte*>(&head_) + head_bytes_ - head_left_, head_left_);
  if (send_ == nullptr) {
    if (payload_left_ > 0) gather.add(bytes_.data() + bytes_.size() - payload_left_, payload_left_);
  } else {
    PieceCursor at = send_->at;
    for (size_t left = payload_left_; left > 0 && !gather.full();) {
      const Piece piece = at.here(send_->from);
      const size_t part = std::min(piece.bytes, left);
      gather.add(piece.data, part, send_->bytes >= kStays);
      at.advance(send_->from, part);
      left -= part;
    }
  }

  const size_t taken = wire_.write(gather.regions());
  const size_t of_head = std::min(taken, head_left_);
  const size_t of_payload = taken - of_head;
  head_left_ -= of_head;
  payload_left_ -= of_payload;
  if (send_ != nullptr) {
    send_->at.skip(send_->from, of_payload);
    send_->moved += of_payload;
  }
  if (head_left_ == 0 && payload_left_ == 0) end_frame();
  return taken;
}

void Outbox::end_frame() {
  busy_ = false;
  if (send_ == nullptr) return;
  if (send_->moved < send_->bytes)
    data_.push(send_);
  else if (send_->bytes < kStays)
    done(*send_);
  else
    accepted_.push({.send = send_,
                    .end = frames_end_,
                    .copied_at = std::chrono::steady_clock::now() + longest_wait(send_->bytes)});
  send_ = nullptr;
}

bool Outbox::complete_confirmed() {
  bool any = false;
  for (; !accepted_.empty(); any = true) {
    const Accepted& first = accepted_.front();
    const bool copy = std::chrono::steady_clock::now() >= first.copied_at;
    if (!wire_.let_go(first.end, copy)) break;
    done(*accepted_.pop().send);
  }
  return any;
}

bool Outbox::settle() {
  wire_.let_go(UINT64_MAX, /*copy=*/true);
  return complete_confirmed();
}

void Outbox::done(Send& send) {
  traffic_.sent(send.bytes);
  send.done = true;
  --*send.pending;
}

}  // namespace hccl_like
