#include "transport/tcp/tcp_wire.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>

namespace hccl_like {
namespace {

constexpr size_t kLargestTcpPeek = 4096;
constexpr size_t kPiecesPerCall = 16;
// A receive buffer below two of loopback's 64 KiB segments makes every segment wait for a timer.
constexpr size_t kSmallestSocketBuffer = 128 * 1024;

// Keepalive of an idle connection: after one second of silence, three probes one second apart.
constexpr int kIdleSeconds = 1, kProbeSeconds = 1, kProbes = 3;
// With bytes in flight the kernel retransmits for a quarter of an hour. The limit outlasts an
// outage of two seconds, including the doubling pause between two retransmissions.
constexpr unsigned kSilenceMs = 4300;
constexpr unsigned kAttempts = 3;
constexpr std::chrono::milliseconds kLookEvery{250};

bool would_block(int error_number) { return error_number == EAGAIN || error_number == EWOULDBLOCK; }

void set_option(int fd, int level, int option, int value) {
  // Ignore errors: all options here only affect performance.
  ::setsockopt(fd, level, option, &value, sizeof value);
}

}  // namespace

// TCP_USER_TIMEOUT is not set: it kills connections to peers that live but read slowly (a long
// kernel, a stopped process). See is_cut_off().
TcpWire::TcpWire(Fd socket, Poller& poller, const TcpOptions& options, std::string peer)
    : Wire("tcp"),
      socket_(std::move(socket)),
      poller_(poller),
      peer_(std::move(peer)),
      capacity_(std::max(options.receive_buffer_bytes, 2 * kLargestTcpPeek)),
      next_look_(Deadline::after(kLookEvery)) {
  buffer_ = std::make_unique_for_overwrite<std::byte[]>(capacity_);
  set_option(socket_.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  if (options.socket_buffer_bytes > 0) {
    const auto bytes = static_cast<int>(
        std::clamp<size_t>(options.socket_buffer_bytes, kSmallestSocketBuffer, INT_MAX));
    set_option(socket_.get(), SOL_SOCKET, SO_SNDBUF, bytes);
    set_option(socket_.get(), SOL_SOCKET, SO_RCVBUF, bytes);
  }
  options.congestion.settle(socket_.get());
  set_option(socket_.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket_.get(), IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set_option(socket_.get(), IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set_option(socket_.get(), IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  interest_ = EPOLLIN;
  poller_.watch(socket_.get(), interest_, *this);
  poller_.count_tried_sockets(+1);
}

TcpWire::~TcpWire() {
  if (!ended_) {
    poller_.forget(socket_.get());
    poller_.count_tried_sockets(-1);
    // close() with unread bytes resets the connection and drops unsent bytes. Discard the unread
    // bytes first, up to a limit if the peer keeps sending.
    for (int i = 0; i < 256; ++i)
      if (::recv(socket_.get(), buffer_.get(), capacity_, MSG_DONTWAIT) <= 0) break;
  }
}

size_t TcpWire::write(std::span<const ConstRegion> pieces) {
  if (ended_ || !write_cause_.empty()) return 0;
  size_t written = 0;
  while (!pieces.empty()) {
    std::array<iovec, kPiecesPerCall> vectors;
    const size_t count = std::min(pieces.size(), vectors.size());
    size_t asked = 0;
    for (size_t i = 0; i < count; ++i) {
      vectors[i] = {const_cast<std::byte*>(pieces[i].data), pieces[i].bytes};
      asked += pieces[i].bytes;
    }
    pieces = pieces.subspan(count);
    if (asked == 0) continue;

    const ssize_t sent = send({vectors.data(), count}, asked);
    if (sent < 0) {
      if (would_block(errno) || errno == ENOBUFS || errno == ENOMEM) break;
      // The kernel may still hold received bytes: the read side reports the end.
      write_cause_ = errno_text(errno);
      readable_ = true;
      break;
    }
    written += static_cast<size_t>(sent);
    if (static_cast<size_t>(sent) < asked) break;
  }
  return written;
}

// Copy short pieces together: the kernel sends one buffer faster than it parses an iovec.
ssize_t TcpWire::send(std::span<iovec> pieces, size_t bytes) {
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  constexpr size_t kShort = 1024;
  ssize_t sent;
  if (bytes <= kShort) {
    std::array<std::byte, kShort> together;
    std::byte* end = together.data();
    for (const iovec& piece : pieces) {
      std::memcpy(end, piece.iov_base, piece.iov_len);
      end += piece.iov_len;
    }
    do sent = ::send(socket_.get(), together.data(), bytes, kFlags);
    while (sent < 0 && errno == EINTR);
    return sent;
  }
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  do sent = ::sendmsg(socket_.get(), &message, kFlags);
  while (sent < 0 && errno == EINTR);
  return sent;
}

std::span<const std::byte> TcpWire::peek(size_t want) {
  want_ = want;
  if (buffered() < want && worth_a_look()) {
    make_room(want);
    if (tail_ < capacity_) receive({});
  }
  return {buffer_.get() + head_, buffered()};
}

void TcpWire::release(size_t bytes) {
  head_ += bytes;
  if (head_ == tail_) head_ = tail_ = 0;
}

// Buffered bytes go first. One system call reads the rest directly into the caller's memory, and
// the bytes after it (mostly the next header) into the buffer.
size_t TcpWire::read(std::span<std::byte> into) {
  want_ = 1;
  const size_t ready_bytes = std::min(buffered(), into.size());
  if (ready_bytes > 0) {
    std::memcpy(into.data(), buffer_.get() + head_, ready_bytes);
    release(ready_bytes);
    into = into.subspan(ready_bytes);
  }
  if (into.empty() || !worth_a_look()) return ready_bytes;
  return ready_bytes + receive(into);
}

// Fills `into`, then the free end of the buffer, in one system call. Returns the bytes in `into`.
size_t TcpWire::receive(std::span<std::byte> into) {
  if (ended_) {
    readable_ = false;
    return 0;
  }
  std::array<iovec, 2> vectors{iovec{into.data(), into.size()},
                               iovec{buffer_.get() + tail_, capacity_ - tail_}};
  const size_t asked = vectors[0].iov_len + vectors[1].iov_len;
  ssize_t got;
  do {
    if (into.empty()) {  // small messages
      got = ::recv(socket_.get(), vectors[1].iov_base, vectors[1].iov_len, MSG_DONTWAIT);
    } else {
      msghdr message{};
      message.msg_iov = vectors.data();
      message.msg_iovlen = vectors.size();
      got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    }
  } while (got < 0 && errno == EINTR);

  if (got > 0) {
    const auto bytes = static_cast<size_t>(got);
    // A short count means an empty kernel queue; the poller reports further bytes or the end.
    readable_ = bytes == asked;
    just_dry_ = !readable_;
    const size_t direct = std::min(bytes, into.size());
    tail_ += bytes - direct;
    return direct;
  }
  if (got < 0 && would_block(errno)) {
    readable_ = false;
    // After a failed write an empty queue is the end, even if the kernel has reported the cause.
    if (!write_cause_.empty()) end(write_cause_);
    return 0;
  }
  if (!write_cause_.empty())
    end(write_cause_);
  else
    end(got == 0 ? "the peer closed the connection" : errno_text(errno));
  return 0;
}

// Moves buffered bytes to the front if `want` bytes would not fit behind or room is short.
void TcpWire::make_room(size_t want) {
  if (head_ == 0 || capacity_ - tail_ >= std::max(want, capacity_ / 4)) return;
  std::memmove(buffer_.get(), buffer_.get() + head_, buffered());
  tail_ -= head_;
  head_ = 0;
}

const Error* TcpWire::failure() const { return ended_ && buffered() < want_ ? &*ended_ : nullptr; }

// This process buffers no outgoing bytes, but the kernel drops undelivered bytes at a reset, and
// close() resets if received bytes are unread. flush() therefore returns true once the peer's
// kernel has confirmed every byte; afterwards neither a reset nor the end of this process loses
// one. The destructor avoids the reset for owners that close earlier.
bool TcpWire::flush() {
  if (ended_ || !write_cause_.empty()) return true;
  int unconfirmed = 0;
  if (::ioctl(socket_.get(), SIOCOUTQ, &unconfirmed) != 0) return true;
  return unconfirmed == 0;
}

bool TcpWire::prepare_sleep(Bytes bytes, bool for_space) {
  const bool unread = bytes == Bytes::kUnread;
  if (ended_) return !unread;
  if (unread && !write_cause_.empty()) return false;
  if (bytes == Bytes::kWanted && buffered() >= want_) return false;
  // EPOLLRDHUP reports the peer's end of stream without a read.
  static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLRDHUP == POLLRDHUP);
  unsigned events = unread ? EPOLLRDHUP : buffered() < capacity_ ? EPOLLIN : 0u;
  if (for_space) events |= EPOLLOUT;
  pollfd now{socket_.get(), static_cast<short>(events), 0};
  const bool already = ::poll(&now, 1, 0) > 0;
  readable_ = (unread && readable_) || (already && (now.revents & ~POLLOUT) != 0);
  if (already) return false;
  if (is_cut_off()) {
    end("its host has not answered for " + std::to_string(kSilenceMs / 1000) + " s");
    break_off();
    return false;
  }
  set_interest(events);
  return true;
}

// Whether the peer's host or the path to it is lost: repeated retransmissions and no answer. A live
// host's kernel acknowledges even if the process does not read: then TCP sends window probes, not
// retransmissions, and this check ignores them.
bool TcpWire::is_cut_off() {
  if (!next_look_.expired()) return false;
  next_look_ = Deadline::after(kLookEvery);
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  return info.tcpi_retransmits >= kAttempts && info.tcpi_last_ack_recv >= kSilenceMs;
}

// Resets the connection: a peer that still hears this host learns of the end.
void TcpWire::break_off() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  socket_.reset();
}

void TcpWire::end_sleep() {
  if (!ended_) set_interest(EPOLLIN);
}

void TcpWire::ready(unsigned events) {
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP)) readable_ = true;
}

void TcpWire::set_interest(unsigned events) {
  if (events == interest_) return;
  interest_ = events;
  poller_.rewatch(socket_.get(), events, *this);
}

// An ended socket stays readable, so leaving it in the poller would prevent sleeping.
void TcpWire::end(std::string cause) {
  if (ended_) return;
  ended_ = Error{ErrorCode::kPeerLost, "the tcp connection to " + peer_ + " is gone: " + cause};
  readable_ = false;
  poller_.forget(socket_.get());
  poller_.count_tried_sockets(-1);
}

}  // namespace hccl_like
