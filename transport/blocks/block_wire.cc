#include "transport/blocks/block_wire.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/deadline.h"
#include "transport/wire/remote_memory.h"

namespace hccl_like {
namespace {

// How long a closing wire waits for written bytes to leave; a reading peer needs a fraction.
constexpr std::chrono::milliseconds kFarewell{200};

}  // namespace

BlockWire::BlockWire(std::unique_ptr<BlockPort> port, BlockShape shape, std::string_view transport,
                     std::string peer)
    : Wire(std::string(transport)),
      port_(std::move(port)),
      shape_(shape),
      peer_(std::move(peer)),
      credits_(shape.blocks) {
  for (size_t slot = shape_.slots(); slot-- > 0;) free_slots_.push_back(slot);
  for (size_t slot = 0; slot < shape_.slots(); ++slot) port_->receive(slot);
}

BlockWire::~BlockWire() {
  const Deadline deadline = Deadline::after(kFarewell);
  const auto over = [&] { return ended_ || !port_->broken().empty() || deadline.expired(); };
  // Send no goodbye to a lost peer.
  do progress();
  while (free_slots_.empty() && !over());
  if (over()) return;
  const size_t slot = free_slots_.back();
  free_slots_.pop_back();
  send(slot, Kind::kGoodbye, 0);
  while (free_slots_.size() < shape_.slots() && !over()) progress();
}

size_t BlockWire::write(std::span<const ConstRegion> pieces) {
  progress();
  size_t written = 0;
  // The last slots are reserved for credits and the goodbye.
  const size_t kept = shape_.slots() - shape_.blocks;
  size_t piece = 0, offset = 0;
  while (!ended_ && credits_ > 0 && free_slots_.size() > kept) {
    const size_t slot = free_slots_.back();
    const std::span<std::byte> memory = port_->send_slot(slot);
    size_t at = sizeof(Header);
    while (piece < pieces.size() && at < memory.size()) {
      const size_t part = std::min(pieces[piece].bytes - offset, memory.size() - at);
      if (part > 0) std::memcpy(memory.data() + at, pieces[piece].data + offset, part);
      at += part;
      offset += part;
      if (offset < pieces[piece].bytes) continue;
      ++piece;
      offset = 0;
    }
    if (at == sizeof(Header)) break;
    free_slots_.pop_back();
    --credits_;
    written += at - sizeof(Header);
    send(slot, Kind::kBytes, at - sizeof(Header));
  }
  return written;
}

void BlockWire::send(size_t slot, Kind kind, size_t payload) {
  const Header header{static_cast<uint32_t>(payload), static_cast<uint32_t>(owed_), kind, 0};
  owed_ = 0;
  std::memcpy(port_->send_slot(slot).data(), &header, sizeof header);
  port_->send(slot, sizeof header + payload);
}

void BlockWire::sent(size_t slot) { free_slots_.push_back(slot); }

// Check the header before its numbers become sizes.
void BlockWire::arrived(size_t slot) {
  Header header;
  const std::span<std::byte> memory = port_->receive_slot(slot);
  std::memcpy(&header, memory.data(), sizeof header);
  if (header.bytes > memory.size() - sizeof header || header.credits > shape_.blocks - credits_)
    return fail("it sent what cannot be understood");
  credits_ += header.credits;
  if (header.kind == Kind::kBytes && header.bytes > 0) {
    arrivals_.push_back({slot, sizeof header, sizeof header + header.bytes});
    arrived_bytes_ += header.bytes;
    return;
  }
  if (header.kind == Kind::kGoodbye) return fail("the peer closed the connection");
  if (header.kind != Kind::kBytes && header.kind != Kind::kCredits)
    return fail("it sent what cannot be understood");
  port_->receive(slot);
}

void BlockWire::fail(std::string why) {
  if (!ended_)
    ended_ = Error{ErrorCode::kPeerLost,
                   "the " + transport() + " connection to " + peer_ + " is gone: " + why};
}

void BlockWire::progress() {
  if (ended_) return;
  port_->progress(*this);
  if (!ended_ && !port_->broken().empty()) fail(port_->broken());
  return_credits();
}

void BlockWire::return_credits() {
  if (!owes_credits() || free_slots_.size() < 2 || ended_) return;
  const size_t slot = free_slots_.back();
  free_slots_.pop_back();
  send(slot, Kind::kCredits, 0);
}

std::span<const std::byte> BlockWire::front() const {
  if (arrivals_.empty()) return {};
  const Arrival& first = arrivals_.front();
  return port_->receive_slot(first.slot).subspan(first.begin, first.end - first.begin);
}

std::span<const std::byte> BlockWire::gather(size_t want) {
  size_t done = 0;
  for (const Arrival& one : arrivals_) {
    const size_t part = std::min(one.end - one.begin, want - done);
    std::memcpy(gathered_.data() + done, port_->receive_slot(one.slot).data() + one.begin, part);
    done += part;
    if (done == want) break;
  }
  return {gathered_.data(), done};
}

std::span<const std::byte> BlockWire::peek(size_t want) {
  want_ = want;
  if (arrived_bytes_ < want) progress();
  const auto view = front();
  return view.size() >= want || arrivals_.size() < 2 ? view
                                                     : gather(std::min(want, gathered_.size()));
}

void BlockWire::release(size_t bytes) {
  arrived_bytes_ -= bytes;
  while (bytes > 0) {
    Arrival& first = arrivals_.front();
    const size_t part = std::min(bytes, first.end - first.begin);
    first.begin += part;
    bytes -= part;
    if (first.begin < first.end) break;
    const size_t slot = first.slot;
    arrivals_.pop_front();
    if (ended_) continue;
    port_->receive(slot);
    ++owed_;
  }
  return_credits();
}

size_t BlockWire::read(std::span<std::byte> into) {
  want_ = 1;
  size_t done = 0;
  while (done < into.size()) {
    if (arrivals_.empty()) progress();
    const auto view = front();
    if (view.empty()) break;
    const size_t part = std::min(view.size(), into.size() - done);
    std::memcpy(into.data() + done, view.data(), part);
    release(part);
    done += part;
  }
  return done;
}

const Error* BlockWire::failure() const {
  return ended_ && arrived_bytes_ < want_ ? &*ended_ : nullptr;
}

bool BlockWire::flush() {
  progress();
  RemoteMemory* const memory = port_->remote_memory();
  const bool notes_sent = memory == nullptr || memory->flush();
  return ended_ || (notes_sent && free_slots_.size() == shape_.slots());
}

bool BlockWire::prepare_sleep(WakeFor wake) {
  if (ended_) return wake.bytes;
  progress();
  if (ended_ || (wake.bytes && arrived_bytes_ >= want_)) return false;
  const size_t kept = shape_.slots() - shape_.blocks;
  if (wake.space && credits_ > 0 && free_slots_.size() > kept) return false;
  return port_->prepare_sleep();
}

void BlockWire::end_sleep() { port_->end_sleep(); }

}  // namespace hccl_like
