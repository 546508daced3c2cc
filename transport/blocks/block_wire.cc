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

std::string title_of(std::string_view transport, const std::string& peer) {
  return std::string(transport) + " connection to " + peer;
}

constexpr CardTimes kNoPings{.silence = std::chrono::hours(1'000'000)};

std::vector<std::unique_ptr<BlockPort>> one_port(std::unique_ptr<BlockPort> port) {
  std::vector<std::unique_ptr<BlockPort>> ports;
  ports.push_back(std::move(port));
  return ports;
}

}  // namespace

BlockWire::BlockWire(std::vector<std::unique_ptr<BlockPort>> ports, BlockShape shape,
                     std::string_view transport, const std::string& peer, const CardTimes& times)
    : Wire(std::string(transport)),
      gone_("the " + title_of(transport, peer) + " is gone: "),
      channel_(std::move(ports), shape, title_of(transport, peer), times),
      memory_(channel_.port(0).remote_memory()) {}

BlockWire::BlockWire(std::unique_ptr<BlockPort> port, BlockShape shape, std::string_view transport,
                     const std::string& peer)
    : BlockWire(one_port(std::move(port)), shape, transport, peer, kNoPings) {}

BlockWire::~BlockWire() { channel_.say_goodbye(Deadline::after(kFarewell)); }

size_t BlockWire::write(std::span<const ConstRegion> pieces) {
  progress();
  size_t written = 0;
  size_t piece = 0, offset = 0;
  for (;;) {
    const std::span<std::byte> room = channel_.room();
    size_t at = 0;
    while (piece < pieces.size() && at < room.size()) {
      const size_t part = std::min(pieces[piece].bytes - offset, room.size() - at);
      if (part > 0) std::memcpy(room.data() + at, pieces[piece].data + offset, part);
      at += part;
      offset += part;
      if (offset < pieces[piece].bytes) continue;
      ++piece;
      offset = 0;
    }
    if (at == 0) return written;
    written += at;
    channel_.send(at);
  }
}

void BlockWire::progress() {
  if (memory_ != nullptr && !memory_->why_abandoned().empty())
    channel_.end(memory_->why_abandoned());
  channel_.progress();
  if (!ended_ && !channel_.ended().empty())
    ended_ = Error{ErrorCode::kPeerLost, gone_ + channel_.ended()};
}

bool BlockWire::holds(size_t bytes) const {
  for (const auto& one : channel_.arrivals()) {
    const size_t here = one.end - one.begin;
    if (here >= bytes) return true;
    bytes -= here;
  }
  return bytes == 0;
}

std::span<const std::byte> BlockWire::front() const {
  const auto& arrivals = channel_.arrivals();
  return arrivals.empty() ? std::span<const std::byte>() : channel_.unread(arrivals.front());
}

std::span<const std::byte> BlockWire::gather(size_t want) {
  size_t done = 0;
  for (const auto& one : channel_.arrivals()) {
    const auto unread = channel_.unread(one);
    const size_t part = std::min(unread.size(), want - done);
    std::memcpy(gathered_.data() + done, unread.data(), part);
    done += part;
    if (done == want) break;
  }
  return {gathered_.data(), done};
}

std::span<const std::byte> BlockWire::peek(size_t want) {
  want_ = want;
  if (!holds(want)) progress();
  const auto view = front();
  return view.size() >= want || channel_.arrivals().size() < 2
             ? view
             : gather(std::min(want, gathered_.size()));
}

void BlockWire::release(size_t bytes) {
  while (bytes > 0) {
    auto& first = channel_.arrivals().front();
    const size_t part = std::min(bytes, first.end - first.begin);
    first.begin += part;
    bytes -= part;
    if (first.begin == first.end) channel_.pop_arrival();
  }
}

size_t BlockWire::read(std::span<std::byte> into) {
  want_ = 1;
  size_t done = 0;
  while (done < into.size()) {
    if (channel_.arrivals().empty()) progress();
    const auto view = front();
    if (view.empty()) break;
    const size_t part = std::min(view.size(), into.size() - done);
    std::memcpy(into.data() + done, view.data(), part);
    release(part);
    done += part;
  }
  return done;
}

const Error* BlockWire::failure() const { return ended_ && !holds(want_) ? &*ended_ : nullptr; }

bool BlockWire::flush() {
  progress();
  const bool notes_sent = memory_ == nullptr || memory_->flush();
  return ended_ || (notes_sent && channel_.all_sent());
}

bool BlockWire::prepare_sleep(WakeFor wake) {
  if (ended_) return wake.bytes;
  progress();
  if (ended_ || (wake.bytes && holds(want_))) return false;
  if (wake.space && !channel_.room().empty()) return false;
  bool may = true;
  for (size_t card = 0; card < channel_.cards(); ++card)
    may = channel_.port(card).prepare_sleep() && may;
  return may;
}

void BlockWire::end_sleep() {
  for (size_t card = 0; card < channel_.cards(); ++card) channel_.port(card).end_sleep();
}

}  // namespace hccl_like
