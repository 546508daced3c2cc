#include "transport/shm/handshake.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include "core/base/error.h"
#include "transport/shm/fd_message.h"
#include "transport/shm/shm_wire.h"

namespace hccl_like {
namespace {

struct Offer {
  std::array<char, 8> magic{'h', 'c', 'c', 'l', 's', 'h', 'm', '3'};
  uint64_t ring_bytes = 0;
};
struct Reply {
  std::array<char, 8> magic = Offer{}.magic;
  uint64_t refusal = 0;  // errno, 0: accepted
};

bool is_doorbell(const Fd& fd) {
  const int flags = ::fcntl(fd.get(), F_GETFL);
  return flags >= 0 && (flags & O_NONBLOCK) != 0;
}

std::string broken_connection() {
  return errno == 0 ? "the peer closed the connection while shared memory was set up"
                    : "cannot set up shared memory with the peer: " + errno_text(errno);
}

}  // namespace

ShmHandshake::ShmHandshake(Fd socket, Side side, size_t ring_bytes, Poller& poller,
                           const Commons* commons)
    : socket_(std::move(socket)),
      side_(side),
      ring_bytes_(round_ring_bytes(ring_bytes)),
      poller_(poller),
      state_(side == Side::kConnector ? State::kOffering : State::kWaiting),
      own_commons_(commons) {
  check_peer();
  if (state_ != State::kFailed) poller_.watch(socket_.get(), EPOLLIN, *this);
}

ShmHandshake::~ShmHandshake() {
  if (socket_.valid()) poller_.forget(socket_.get());
}

void ShmHandshake::check_peer() {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
    fail("cannot learn whose the peer's process is: " + errno_text(errno));
  else if (peer.uid != ::geteuid())
    fail("the peer's process belongs to another user (uid " + std::to_string(peer.uid) + ")");
}

bool ShmHandshake::step() {
  State before;
  do {
    before = state_;
    next();
  } while (state_ != before);
  return state_ == State::kDone || state_ == State::kFailed;
}

std::unique_ptr<Wire> ShmHandshake::take() { return std::move(wire_); }

void ShmHandshake::next() {
  try {
    switch (state_) {
      case State::kOffering:
        return offer();
      case State::kWaiting:
        return side_ == Side::kConnector ? receive_reply() : receive_offer();
      case State::kReplying:
        return reply();
      case State::kDone:
      case State::kFailed:
        return;
    }
  } catch (const Exception& exception) {
    fail(exception.error().message);
  }
}

bool ShmHandshake::send(std::span<const std::byte> bytes, std::vector<int> fds) {
  fds.push_back(poller_.doorbell());
  if (own_commons_ != nullptr) fds.push_back(own_commons_->fd());
  const FdMessageResult result = send_with_fds(socket_.get(), bytes, fds);
  if (result == FdMessageResult::kFailed) fail(broken_connection());
  return result == FdMessageResult::kDone;
}

bool ShmHandshake::receive(std::span<std::byte> bytes, std::vector<Fd>& fds) {
  const FdMessageResult result = receive_with_fds(socket_.get(), bytes, fds);
  if (result == FdMessageResult::kFailed) fail(broken_connection());
  return result == FdMessageResult::kDone;
}

// Takes the peer's doorbell and optional Commons; false if the descriptors are something else.
bool ShmHandshake::take_fds(std::span<Fd> fds) {
  if (fds.empty() || fds.size() > 2 || !is_doorbell(fds[0])) return false;
  doorbell_ = std::move(fds[0]);
  if (fds.size() == 2) commons_ = std::make_unique<PeerCommons>(std::move(fds[1]));
  return true;
}

void ShmHandshake::offer() {
  if (!segment_) segment_ = ShmSegment::create(ring_bytes_);
  const Offer offer{.ring_bytes = ring_bytes_};
  if (send(std::as_bytes(std::span(&offer, 1)), {segment_->fd()})) state_ = State::kWaiting;
}

void ShmHandshake::receive_offer() {
  Offer offer;
  std::vector<Fd> fds;
  if (!receive(std::as_writable_bytes(std::span(&offer, 1)), fds)) return;
  if (offer.magic != Offer{}.magic || fds.empty() || !take_fds(std::span(fds).subspan(1)))
    return fail("the peer offered shared memory in a way that this version does not know");
  try {
    segment_ = ShmSegment::open(std::move(fds[0]), offer.ring_bytes);
  } catch (const Exception& exception) {
    cause_ = exception.error().message;
    refusal_ = ENOMEM;
  }
  state_ = State::kReplying;
}

void ShmHandshake::reply() {
  const Reply reply{.refusal = static_cast<uint64_t>(refusal_)};
  if (!send(std::as_bytes(std::span(&reply, 1)), {})) return;
  if (refusal_ != 0) return fail(cause_);
  finish();
}

void ShmHandshake::receive_reply() {
  Reply reply;
  std::vector<Fd> fds;
  if (!receive(std::as_writable_bytes(std::span(&reply, 1)), fds)) return;
  if (reply.magic != Offer{}.magic || !take_fds(fds))
    return fail(
        "the peer answered an offer of shared memory in a way that this version does not "
        "know");
  if (reply.refusal != 0) return fail("the peer could not map the shared memory offered to it");
  finish();
}

void ShmHandshake::finish() {
  poller_.forget(socket_.get());
  wire_ = std::make_unique<ShmWire>(ShmEnd{.side = side_ == Side::kConnector ? 0 : 1,
                                           .socket = std::move(socket_),
                                           .segment = std::move(*segment_),
                                           .doorbell = std::move(doorbell_),
                                           .commons = std::move(commons_)},
                                    poller_);
  segment_.reset();
  state_ = State::kDone;
}

void ShmHandshake::fail(std::string cause) {
  poller_.forget(socket_.get());
  socket_.reset();
  segment_.reset();
  cause_ = std::move(cause);
  state_ = State::kFailed;
}

}  // namespace hccl_like
