#include "transport/shm/shm_wire.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/memory/copy.h"

namespace hccl_like {
namespace {

// Bytes of ring memory allocated at a time; not less than one write.
constexpr size_t kMadeAtOnce = 256 << 10;
static_assert(kMadeAtOnce >= kRingPart);
// The alignment of long payloads: other copies take up to twice as long.
constexpr size_t kCacheLine = 64;
// Shorter pieces do not form a part of their own.
constexpr size_t kMostHead = 128;

}  // namespace

ShmWire::ShmWire(ShmEnd end, Poller& poller)
    : Wire("shm", kCacheLine),
      poller_(poller),
      side_(end.side),
      socket_(std::move(end.socket)),
      doorbell_(std::move(end.doorbell)),
      commons_(std::move(end.commons)),
      segment_(std::move(end.segment)),
      writer_(segment_.writer(end.side)),
      reader_(segment_.reader(1 - end.side)) {
  segment_.close_fd();
  poller_.watch(socket_.get(), EPOLLIN | EPOLLRDHUP, lifeline_);
  watch_process();
}

ShmWire::~ShmWire() {
  poller_.forget(socket_.get());
  poller_.forget(process_.get());
}

void ShmWire::watch_process() {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0)
    return;
  process_.reset(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
  if (process_.valid()) poller_.watch(process_.get(), EPOLLIN, lifeline_);
}

size_t ShmWire::write(std::span<const ConstRegion> pieces) {
  if (gone_) return 0;
  size_t total = 0;
  for (ConstRegion piece : pieces) {
    while (piece.bytes > 0) {
      // Publish a header together with its payload, so that parts end at cache line boundaries.
      const size_t wanted = std::min(piece.bytes, kRingPart);
      const bool full = writer_.unpublished() + wanted > kRingPart + kMostHead;
      const size_t part = full ? 0 : std::min(wanted, writer_.space(wanted));
      if (part == 0) {
        // The ring is full, or a part is complete and must be published first.
        if (writer_.unpublished() == 0) return total;
        publish_written();
        continue;
      }
      if (made_ < segment_.ring_bytes() && !make_ring(writer_.written() + part)) return total;
      writer_.put(piece.data, part);
      piece.data += part;
      piece.bytes -= part;
      total += part;
    }
  }
  if (writer_.unpublished() > 0) publish_written();
  return total;
}

// Allocates the ring's memory for the first `end` bytes of the stream.
bool ShmWire::make_ring(uint64_t end) {
  while (made_ < std::min<uint64_t>(end, segment_.ring_bytes()) && !no_memory_) {
    const size_t more = std::min(kMadeAtOnce, segment_.ring_bytes() - made_);
    no_memory_ = !segment_.make(side_, made_, more);
    if (!no_memory_) made_ += more;
  }
  return !no_memory_;
}

void ShmWire::publish_written() {
  if (writer_.publish()) Poller::ring(doorbell_.get());
}

void ShmWire::nudge() {
  if (writer_.must_wake_reader()) Poller::ring(doorbell_.get());
}

void ShmWire::publish_read() {
  if (reader_.publish()) Poller::ring(doorbell_.get());
}

std::span<const std::byte> ShmWire::peek(size_t want) {
  want_ = want;
  const size_t shown = reader_.available(want);
  // Publish free space when this side has to wait (otherwise now and then).
  if (shown < want && reader_.unpublished() > 0) publish_read();
  return {reader_.data(), shown};
}

void ShmWire::release(size_t bytes) {
  reader_.drop(std::min(bytes, reader_.available(bytes)));
  if (reader_.unpublished() >= std::min(kRingPart, segment_.ring_bytes() / 4)) publish_read();
}

size_t ShmWire::read(std::span<std::byte> into) {
  size_t total = 0;
  while (total < into.size()) {
    const std::span<const std::byte> view = peek(1);
    const size_t part = std::min({view.size(), into.size() - total, kRingPart});
    if (part == 0) break;
    copy_between_cores(into.data() + total, view.data(), part, into.size());
    release(part);
    total += part;
  }
  return total;
}

const Error* ShmWire::failure() const {
  if (reader_.damaged() || writer_.damaged()) {
    static const Error damaged{.code = ErrorCode::kPeerLost,
                               .message =
                                   "the peer damaged the memory that it shares with this "
                                   "process"};
    return &damaged;
  }
  if (no_memory_) {
    static const Error none{.code = ErrorCode::kSystem,
                            .message = "the system has no memory for a connection on this host"};
    return &none;
  }
  return gone_ && reader_.available(want_) < want_ ? &*gone_ : nullptr;
}

bool ShmWire::prepare_sleep(WakeFor wake) {
  if (!gone_ && commons_ && commons_->owner_died()) lose();
  if (reader_.unpublished() > 0) publish_read();
  // Armed in any case: nudges wake this side, too.
  const bool nothing_to_read = reader_.prepare_sleep(want_) || !wake.bytes;
  const bool no_space = !wake.space || writer_.prepare_sleep();
  const bool ends = wake.bytes ? failure() != nullptr : gone_ || reader_.damaged();
  return nothing_to_read && no_space && !ends;
}

void ShmWire::end_sleep() {
  reader_.end_sleep();
  writer_.end_sleep();
}

void ShmWire::lose() {
  poller_.forget(socket_.get());
  poller_.forget(process_.get());
  gone_ = Error{.code = ErrorCode::kPeerLost,
                .message = "the peer's process ended or closed its end of the connection"};
}

}  // namespace hccl_like
