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

// A connection on which nothing is under way is tried by the kernel: after a second of silence,
// three times a second apart.
constexpr int kIdleSeconds = 1, kProbeSeconds = 1, kProbes = 3;
// On one with bytes under way the kernel tries for a quarter of an hour. Longer than any outage of
// two seconds lasts with the pause between two of its attempts, which double.
constexpr unsigned kSilenceMs = 4300;
constexpr unsigned kAttempts = 3;
constexpr std::chrono::milliseconds kLookEvery{250};

bool would_block(int error_number) { return error_number == EAGAIN || error_number == EWOULDBLOCK; }

void set_option(int fd, int level, int option, int value) {
  // Every option here only makes things faster, so a kernel that refuses one is no reason to fail.
  ::setsockopt(fd, level, option, &value, sizeof value);
}

}  // namespace

// TCP_USER_TIMEOUT is left alone on purpose: it counts a peer that is alive but slow to read (a
// long kernel, a stopped process) as gone and kills the connection. See is_cut_off().
TcpWire::TcpWire(Fd socket, Poller& poller, const TcpOptions& options, std::string peer)
    : socket_(std::move(socket)),
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
    // Bytes that were never read make close() reset the connection, and a reset drops what still
    // waits to be sent. They are thrown away first, but not for ever if the peer keeps sending.
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
      // The peer is gone, but what it sent before may still wait in the kernel: the read side
      // reports the end.
      write_cause_ = errno_text(errno);
      readable_ = true;
      break;
    }
    written += static_cast<size_t>(sent);
    if (static_cast<size_t>(sent) < asked) break;
  }
  return written;
}

// What is short is copied together: the kernel takes one piece in less time than it takes to look
// at a list of them.
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

// What was buffered goes first. The rest comes straight into the caller's memory, and what follows
// it (the next message's header, mostly) into the buffer by the same system call.
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

// One system call that fills `into` and then the free end of the buffer. Returns how many bytes
// went to `into`.
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
    if (into.empty()) {  // the way of small messages
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
    // A short count means that the kernel's queue was empty; the poller tells when there is more,
    // or the end.
    readable_ = bytes == asked;
    just_dry_ = !readable_;
    const size_t direct = std::min(bytes, into.size());
    tail_ += bytes - direct;
    return direct;
  }
  if (got < 0 && would_block(errno)) {
    readable_ = false;
    // After a failed write a dry queue is the end, even if the kernel has already told the cause.
    if (!write_cause_.empty()) end(write_cause_);
    return 0;
  }
  if (!write_cause_.empty())
    end(write_cause_);
  else
    end(got == 0 ? "the peer closed the connection" : errno_text(errno));
  return 0;
}

// Moves the buffered bytes to the front if a peek of `want` bytes would not fit behind them, or if
// little room is left.
void TcpWire::make_room(size_t want) {
  if (head_ == 0 || capacity_ - tail_ >= std::max(want, capacity_ / 4)) return;
  std::memmove(buffer_.get(), buffer_.get() + head_, buffered());
  tail_ -= head_;
  head_ = 0;
}

const Error* TcpWire::failure() const { return ended_ && buffered() < want_ ? &*ended_ : nullptr; }

// Nothing waits in this process: write() threads bytes to the kernel or does not take them. But the
// kernel drops what it has not delivered if the connection is reset, and close() resets when the
// peer's last bytes were not read here. So "flushed" means that the peer's kernel has confirmed
// every byte; from then on neither a reset nor the end of this process can lose one. Whoever closes
// before that relies on the destructor, which avoids the reset.
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
  // A socket that nobody reads tells by itself that its peer has sent its last byte.
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

// Whether the peer's host is gone, or the way to it: bytes were sent again and again, and nothing
// at all has come back. The kernel of a host that is there answers, even if the process does not
// read: then there are no further attempts, only questions after room, which this leaves out.
bool TcpWire::is_cut_off() {
  if (!next_look_.expired()) return false;
  next_look_ = Deadline::after(kLookEvery);
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  return info.tcpi_retransmits >= kAttempts && info.tcpi_last_ack_recv >= kSilenceMs;
}

// A network may fail in one direction only: a peer that still hears this host, and goes on waiting
// for it, is told.
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

// A finished socket stays readable for ever: leaving it in the poller would keep the process from
// sleeping.
void TcpWire::end(std::string cause) {
  if (ended_) return;
  ended_ = Error{ErrorCode::kPeerLost, "the tcp connection to " + peer_ + " is gone: " + cause};
  readable_ = false;
  poller_.forget(socket_.get());
  poller_.count_tried_sockets(-1);
}

}  // namespace hccl_like
