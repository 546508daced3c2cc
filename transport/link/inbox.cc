#include "transport/link/inbox.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/memory/copy.h"
#include "transport/message/absorb.h"

namespace hccl_like {
namespace {

// Enough bytes for efficient kernels, few enough that the sender gets space while still writing.
constexpr size_t kCombineBytes = 32 << 10;
constexpr size_t kPastCachesBytes = 64 << 10;
constexpr size_t kKeptBuffer = 16 << 10;

}  // namespace

Inbox::Inbox(Wire& wire, Outbox& outbox, Rendezvous& rendezvous, const LinkOptions& options,
             Fifo<Link::Mismatch>& mismatches, Traffic& traffic)
    : wire_(wire),
      outbox_(outbox),
      rendezvous_(rendezvous),
      eager_bytes_(options.eager_bytes),
      turn_bytes_(options.turn_bytes),
      least_past_caches_(options.least_past_caches),
      early_limit_(options.early_bytes_limit),
      alignment_(wire.alignment()),
      mismatches_(mismatches),
      traffic_(traffic) {}

void Inbox::post(Recv& recv) {
  recv.moved = 0;
  recv.into_at = {};
  recv.operand_at = {};
  recv.beside = false;
  Incoming* found = incoming_.find(recv.tag);
  if (found == nullptr) {
    const bool asked = recv.bytes > eager_bytes_ && !recv.caller_driven;
    incoming_.insert(recv.tag, {.recv = &recv, .asked = asked});
    if (asked) ask_for(recv);
    return;
  }
  if (found->recv != nullptr)
    throw_misuse("two receives of one tag are posted on a link: tags must be unique");

  EarlyMessage* early = found->early;
  const bool announced = early->announced();
  // A caller-driven receive sends no request.
  if (announced && recv.caller_driven) return;
  // Two early messages may name one slot, and the other may have begun.
  if (early->has_descriptor() && !rendezvous_.may_begin(early->from.slot)) return fail(kSlotInUse);
  // Also on a mismatch, so that the sender learns the expected call.
  if (announced) ask_for(recv);
  if (!matches(recv, early->header)) {
    if (early_ == early) early_ = nullptr;
    free_early(early);
    incoming_.erase(recv.tag);
    return;
  }
  if (early->has_descriptor()) {
    meet(recv, early->from);
    early->header.payload = 0;
  }
  found->recv = &recv;
  if (announced) {
    found->asked = true;
    found->early = nullptr;
    free_early(early);
  } else if (early->whole()) {
    deliverable_.push(recv.tag);
  }
}

bool Inbox::matches(const Recv& recv, const FrameHeader& header) {
  if (recv.fingerprint == header.fingerprint && recv.bytes == header.bytes) return true;
  mismatches_.push({.tag = recv.tag,
                    .expected = recv.fingerprint,
                    .received = header.fingerprint,
                    .expected_bytes = recv.bytes,
                    .received_bytes = header.bytes});
  return false;
}

void Inbox::withdraw(Recv& recv) {
  Incoming* found = incoming_.find(recv.tag);
  if (found == nullptr || found->recv != &recv) return;
  found->recv = nullptr;
  deliverable_.erase_if([&](const Tag& tag) { return tag == recv.tag; });
  if (recv_ == &recv) {
    // Its message is being read: the part that has arrived moves to an early buffer.
    early_ = found->early = new_early(header_);
    recv_ = nullptr;
    for (size_t& at = early_->filled; at < recv.moved;) {
      const Piece piece = recv.into.from(at);
      const size_t part = std::min(piece.bytes, recv.moved - at);
      std::memcpy(early_->data.get() + at, piece.data, part);
      at += part;
    }
  } else if (found->early == nullptr) {
    incoming_.erase(recv.tag);
  }
}

void Inbox::cancel(uint64_t communicator) {
  if (!is_cancelled(communicator)) cancelled_.push_back(communicator);
  incoming_.erase_if([&](const Tag& tag, const Incoming& incoming) {
    if (tag.communicator != communicator) return false;
    if (incoming.early != nullptr) free_early(incoming.early);
    return true;
  });
  deliverable_.erase_if([&](const Tag& tag) { return tag.communicator == communicator; });
  if (busy_ && header_.tag.communicator == communicator && header_.kind != FrameKind::kAbort) {
    recv_ = nullptr;
    early_ = nullptr;
  }
}

bool Inbox::is_cancelled(uint64_t communicator) const {
  return std::find(cancelled_.begin(), cancelled_.end(), communicator) != cancelled_.end();
}

bool Inbox::arrived(const Tag& tag, size_t* bytes) const {
  const Incoming* found = incoming_.find(tag);
  if (found == nullptr || found->recv != nullptr) return false;
  *bytes = found->early->header.bytes;
  return true;
}

std::optional<Link::Mismatch> Inbox::find_stray(uint64_t communicator,
                                                const Link::Made& made) const {
  std::optional<Link::Mismatch> stray;
  incoming_.any_of([&](const Incoming& one) {
    if (one.recv != nullptr || one.early == nullptr) return false;
    const FrameHeader& header = one.early->header;
    if (header.tag.communicator != communicator || header.tag.channel != 0) return false;
    const std::optional<uint64_t> own = made(header.tag.sequence);
    if (!own || *own == header.fingerprint) return false;
    stray = {.tag = header.tag,
             .expected = *own,
             .received = header.fingerprint,
             .received_bytes = header.bytes};
    return true;
  });
  return stray;
}

std::optional<CallNotice> Inbox::take_call() {
  if (calls_.empty()) return std::nullopt;
  return calls_.pop();
}

std::optional<AbortNotice> Inbox::take_abort() {
  if (aborts_.empty()) return std::nullopt;
  return aborts_.pop();
}

bool Inbox::deliver_early() {
  const bool any = !deliverable_.empty();
  while (!deliverable_.empty()) deliver(deliverable_.pop());
  return any;
}

bool Inbox::progress(const Recv* until) {
  bool moved = deliver_early();
  for (size_t read = 0; read < turn_bytes_ && !failure_;) {
    if (until != nullptr && (until->done || until->beside)) break;
    if (!busy_) {
      if (!begin_frame()) break;
      read += sizeof header_;
      moved = true;
    }
    const size_t before = left_;
    const bool whole = read_payload();
    read += before - left_;
    moved = moved || left_ < before;
    if (!whole) break;
    end_frame();
  }
  return moved;
}

// Reads a header and chooses the destination of its payload. False: incomplete.
bool Inbox::begin_frame() {
  const std::span<const std::byte> view = wire_.peek(sizeof header_);
  if (view.size() < sizeof header_) return false;
  std::memcpy(&header_, view.data(), sizeof header_);
  if (!plausible(header_)) {
    fail("a frame with an impossible header");
    return false;
  }
  const size_t head = sizeof header_ + gap_after(header_, frames_end_, alignment_);
  if (wire_.peek(head).size() < head) return false;
  recv_ = nullptr;
  early_ = nullptr;
  left_ = header_.payload;
  if (header_.payload > 0 &&
      (header_.kind == FrameKind::kAnnounce || header_.kind == FrameKind::kReady)) {
    if (!read_descriptor()) return false;
    left_ = 0;
  }
  switch (header_.kind) {
    case FrameKind::kEager:
      // A stalled header stays on the wire and is checked again later.
      if (!begin_eager(header_)) return false;
      break;
    case FrameKind::kAnnounce:
      begin_announced(header_);
      break;
    case FrameKind::kReady:
      if (!is_cancelled(header_.tag.communicator))
        outbox_.ready(header_, header_.payload > 0 ? &descriptor_ : nullptr);
      break;
    case FrameKind::kData:
      begin_data(header_);
      break;
    case FrameKind::kAbort:
      text_.clear();
      break;
    case FrameKind::kGoodbye:
      goodbye_ = true;
      break;
    case FrameKind::kCall:
      if (!is_cancelled(header_.tag.communicator))
        calls_.push(
            {.tag = header_.tag, .fingerprint = header_.fingerprint, .bytes = header_.bytes});
      break;
  }
  if (failure_) return false;
  wire_.release(head + (header_.payload - left_));
  frames_end_ += head + header_.payload;
  busy_ = true;
  return true;
}

bool Inbox::begin_eager(const FrameHeader& header) {
  if (Incoming* found = incoming_.find(header.tag)) {
    if (found->early != nullptr || found->recv->moved > 0) {
      fail("two messages with one tag");
    } else if (!matches(*found->recv, header)) {
      incoming_.erase(header.tag);
    } else if (found->recv->device && header.bytes > 0) {
      mismatches_.push({.tag = header.tag, .unreachable = true});
    } else {
      recv_ = found->recv;
    }
  } else if (!is_cancelled(header.tag.communicator)) {
    const size_t cost = EarlyMessage::cost(header);
    stalled_ = early_bytes_ > 0 && early_bytes_ + cost > early_limit_ && !awaits() &&
               !std::exchange(one_more_, false);
    if (stalled_) return false;
    early_ = new_early(header);
    incoming_.insert(header.tag, {.early = early_});
  }
  stalled_ = false;
  return true;
}

// Whether a receive or an announced send waits for data that may follow the early messages.
bool Inbox::awaits() const {
  return outbox_.awaits_ready() ||
         incoming_.any_of([](const Incoming& one) { return one.recv != nullptr && !one.early; });
}

// False if the wire has no more bytes now.
bool Inbox::read_payload() {
  while (left_ > 0) {
    size_t part = 0;
    if (recv_ != nullptr) {
      part = recv_->combine != nullptr ? combine_into(*recv_) : read_into(*recv_);
    } else if (early_ != nullptr) {
      part = wire_.read({early_->data.get() + early_->filled, left_});
      early_->filled += part;
    } else {
      const std::span<const std::byte> view = wire_.peek();
      part = std::min(view.size(), left_);
      if (header_.kind == FrameKind::kAbort)
        text_.append(reinterpret_cast<const char*>(view.data()), part);
      wire_.release(part);
    }
    if (part == 0) return false;
    left_ -= part;
  }
  return true;
}

size_t Inbox::read_into(Recv& recv) {
  const Piece piece = recv.into_at.here(recv.into);
  const std::span<std::byte> into(piece.data, std::min(piece.bytes, left_));
  const size_t part = recv.bytes >= least_past_caches_ ? read_past_caches(into) : wire_.read(into);
  recv.into_at.advance(recv.into, part);
  recv.moved += part;
  return part;
}

size_t Inbox::read_past_caches(std::span<std::byte> into) {
  const std::span<const std::byte> view = wire_.peek();
  // Release in parts, so that the peer continues meanwhile.
  const size_t part = std::min({view.size(), into.size(), kPastCachesBytes});
  copy_past_caches(into.data(), view.data(), part);
  wire_.release(part);
  return part;
}

// Whole elements only: a partial element stays on the wire.
size_t Inbox::combine_into(Recv& recv) {
  const std::span<const std::byte> view = wire_.peek(recv.element_bytes);
  const Piece into = recv.into_at.here(recv.into);
  const Piece operand = recv.operand_at.here(recv.operand);
  size_t part = std::min({view.size(), left_, into.bytes, operand.bytes, kCombineBytes});
  part -= part % recv.element_bytes;
  if (part == 0) return 0;
  recv.combine(into.data, operand.data, view.data(), part / recv.element_bytes);
  wire_.release(part);
  recv.into_at.advance(recv.into, part);
  recv.operand_at.advance(recv.operand, part);
  recv.moved += part;
  return part;
}

void Inbox::end_frame() {
  busy_ = false;
  if (header_.kind == FrameKind::kAbort) {
    aborts_.push({.communicator = header_.tag.communicator, .reason = text_});
  } else if (recv_ != nullptr) {
    if (recv_->moved == recv_->bytes) done(*recv_);
  } else if (early_ != nullptr) {
    if (incoming_.find(header_.tag)->recv != nullptr) deliver(header_.tag);
  }
  recv_ = nullptr;
  early_ = nullptr;
}

// Moves a complete early message to the destination of its Recv.
void Inbox::deliver(Tag tag) {
  const Incoming incoming = *incoming_.find(tag);
  Recv& recv = *incoming.recv;
  if (recv.device && recv.bytes > 0) return mismatches_.push({.tag = tag, .unreachable = true});
  absorb(recv, incoming.early->data.get() + recv.moved, recv.bytes - recv.moved);
  free_early(incoming.early);
  done(recv);
}

void Inbox::done(Recv& recv) {
  incoming_.erase(recv.tag);
  traffic_.received(recv.bytes);
  recv.done = true;
  --*recv.pending;
}

EarlyMessage* Inbox::new_early(const FrameHeader& header) {
  EarlyMessage* early = early_pool_.take();
  early->header = header;
  early->filled = 0;
  const bool eager = header.kind == FrameKind::kEager;
  if (eager && header.payload > early->capacity) {
    early->capacity = std::bit_ceil(header.payload);
    early->data = std::make_unique_for_overwrite<std::byte[]>(early->capacity);
  }
  early_bytes_ += early->cost();
  return early;
}

void Inbox::free_early(EarlyMessage* early) {
  early_bytes_ -= early->cost();
  if (early->has_descriptor()) rendezvous_.decline(static_cast<uint32_t>(early->from.slot));
  if (early->capacity > kKeptBuffer) {
    early->data.reset();
    early->capacity = 0;
  }
  early_pool_.give_back(early);
}

void Inbox::fail(const char* what) {
  failure_ =
      Error{.code = ErrorCode::kPeerLost,
            .message = std::string("the peer sent something that is not our protocol (") + what +
                       "): is another version of hccl-like installed there, or did "
                       "another program connect"};
}

}  // namespace hccl_like
