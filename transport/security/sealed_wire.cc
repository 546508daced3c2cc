#include "transport/security/sealed_wire.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hccl_like {
namespace {

constexpr size_t kFrameWithAll = SealedWire::kHead + SealedWire::kFrame + SealingKey::kTag;
constexpr size_t kLargestPeek = 4096;
constexpr size_t kBuffer = SealedWire::kFrame + kLargestPeek;
constexpr const char* kBroken = "libcrypto failed";

Key direction(const Key& session, WireSide from) {
  return session.derive(
      from == WireSide::kConnector ? "connector to acceptor" : "acceptor to connector", {});
}
WireSide other(WireSide side) {
  return side == WireSide::kConnector ? WireSide::kAcceptor : WireSide::kConnector;
}

size_t sum(std::span<const ConstRegion> pieces) {
  size_t bytes = 0;
  for (const ConstRegion& piece : pieces) bytes += piece.bytes;
  return bytes;
}

// Skips `bytes` bytes; returns the rest of the first remaining piece.
ConstRegion skip(std::span<const ConstRegion>& pieces, size_t bytes) {
  while (!pieces.empty() && bytes >= pieces.front().bytes) {
    bytes -= pieces.front().bytes;
    pieces = pieces.subspan(1);
  }
  if (pieces.empty()) return {};
  return {pieces.front().data + bytes, pieces.front().bytes - bytes};
}

}  // namespace

SealedWire::SealedWire(std::unique_ptr<Wire> inner, const Key& session, WireSide side,
                       std::string peer, uint64_t frames_a_key)
    : Wire(inner->transport()),
      inner_(std::move(inner)),
      peer_(std::move(peer)),
      sealing_(direction(session, side), SealingKey::Direction::kSeal, frames_a_key),
      opening_(direction(session, other(side)), SealingKey::Direction::kOpen, frames_a_key),
      out_(std::make_unique_for_overwrite<std::byte[]>(kFrameWithAll)),
      in_(std::make_unique_for_overwrite<std::byte[]>(kFrameWithAll)),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kBuffer)) {}

SealedWire::~SealedWire() = default;

// Writes the sealed frame to the inner wire; true when none of it is left.
bool SealedWire::push() {
  if (ended_) return true;
  while (out_head_ < out_tail_) {
    const ConstRegion rest{out_.get() + out_head_, out_tail_ - out_head_};
    const size_t taken = inner_->write({&rest, 1});
    if (taken == 0) return false;
    out_head_ += taken;
  }
  return true;
}

size_t SealedWire::write(std::span<const ConstRegion> pieces) {
  size_t written = 0;
  const size_t all = sum(pieces);
  for (;;) {
    if (ended_ || !push()) return written;
    const size_t counted = std::min(owed_, all - written);
    owed_ -= counted;
    written += counted;
    if (written == all) return written;
    auto rest = pieces;
    ConstRegion first = skip(rest, written);
    const size_t bytes = std::min(all - written, kFrame);
    std::byte* at = out_.get();
    const auto length = static_cast<uint32_t>(bytes);
    std::memcpy(at, &length, sizeof length);
    bool well = sealing_.seal_length(length, at + sizeof length) && sealing_.begin_bytes();
    at += kHead;
    for (size_t left = bytes; well && left > 0;) {
      const size_t part = std::min(first.bytes, left);
      if (part > 0) well = sealing_.add_bytes(first.data, part, at);
      at += part;
      left -= part;
      if (left > 0) {
        rest = rest.subspan(1);
        first = rest.front();
      }
    }
    if (!well || !sealing_.finish_sealing(at)) {
      end(kBroken);
      return written;
    }
    out_head_ = 0;
    out_tail_ = kHead + bytes + SealingKey::kTag;
    owed_ = bytes;
  }
}

bool SealedWire::flush() { return ended_ || (inner_->flush() && out_head_ == out_tail_); }

// Reads the incoming frame; true when it is complete.
bool SealedWire::fetch() {
  if (ended_ || (frame_ == 0 && !fetch_head())) return false;
  const size_t all = kHead + frame_ + SealingKey::kTag;
  while (in_bytes_ < all) {
    const size_t got = inner_->read({in_.get() + in_bytes_, all - in_bytes_});
    if (got == 0) return false;
    in_bytes_ += got;
  }
  return true;
}

bool SealedWire::fetch_head() {
  while (in_bytes_ < kHead) {
    const size_t got = inner_->read({in_.get() + in_bytes_, kHead - in_bytes_});
    if (got == 0) return false;
    in_bytes_ += got;
  }
  uint32_t length = 0;
  std::memcpy(&length, in_.get(), sizeof length);
  if (!opening_.open_length(length, in_.get() + sizeof length) || length == 0 || length > kFrame) {
    end("what arrived was not sealed by the peer, or not in this order");
    return false;
  }
  frame_ = length;
  return true;
}

// Decrypts the complete frame to `to`, which has room for all its bytes.
bool SealedWire::decrypt(std::byte* to) {
  const size_t bytes = std::exchange(frame_, 0);
  in_bytes_ = 0;
  if (opening_.begin_bytes() && opening_.add_bytes(in_.get() + kHead, bytes, to) &&
      opening_.finish_opening(in_.get() + kHead + bytes))
    return true;
  end("what arrived was changed on its way");
  return false;
}

void SealedWire::open_into_buffer() {
  if (head_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + head_, clear());
    tail_ -= head_;
    head_ = 0;
  }
  const size_t bytes = frame_;
  if (decrypt(buffer_.get() + tail_)) tail_ += bytes;
}

std::span<const std::byte> SealedWire::peek(size_t want) {
  want_ = want;
  // Fewer than `want` bytes are buffered, so one more frame fits.
  while (clear() < want && fetch()) open_into_buffer();
  return {buffer_.get() + head_, clear()};
}

void SealedWire::release(size_t bytes) {
  head_ += bytes;
  if (head_ == tail_) head_ = tail_ = 0;
}

size_t SealedWire::read(std::span<std::byte> into) {
  want_ = 1;
  size_t done = 0;
  while (done < into.size()) {
    if (clear() > 0) {
      const size_t part = std::min(clear(), into.size() - done);
      std::memcpy(into.data() + done, buffer_.get() + head_, part);
      release(part);
      done += part;
    } else if (!fetch()) {
      break;
    } else if (const size_t bytes = frame_; bytes <= into.size() - done) {
      if (!decrypt(into.data() + done)) break;
      done += bytes;
    } else {
      open_into_buffer();
    }
  }
  return done;
}

const Error* SealedWire::failure() const {
  if (clear() >= want_) return nullptr;
  if (ended_) return &*ended_;
  const bool frame_waits = frame_ != 0 && in_bytes_ == kHead + frame_ + SealingKey::kTag;
  return frame_waits ? nullptr : inner_->failure();
}

bool SealedWire::prepare_sleep(WakeFor wake) {
  if (ended_) return wake.bytes;
  if (wake.bytes && clear() < want_ && fetch()) return false;
  if (ended_) return false;
  const bool may = inner_->prepare_sleep(wake);
  return may && (!wake.bytes || clear() < want_);
}

void SealedWire::end_sleep() {
  if (!ended_) inner_->end_sleep();
}

void SealedWire::end(std::string cause) {
  ended_ = Error{ErrorCode::kPeerLost,
                 "the encrypted connection to " + peer_ + " is given up: " + std::move(cause)};
  inner_.reset();
}

}  // namespace hccl_like
