#include "transport/tcp/tcp_socket.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <limits>
#include <utility>

namespace hccl_like {
namespace {

// A receive buffer below two of loopback's 64 KiB segments makes every segment wait for a timer.
constexpr size_t kSmallestSocketBuffer = 128 * 1024;
// Keepalive of an idle connection: after one second of silence, probes one second apart.
constexpr int kIdleSeconds = 1, kProbeSeconds = 1;
constexpr int kProbes = 3, kProbesBeforeAnother = 2;
constexpr std::chrono::milliseconds kLookEvery{100};

void set_option(int fd, int level, int option, int value) {
  // Ignore errors: all options here only affect performance.
  ::setsockopt(fd, level, option, &value, sizeof value);
}

}  // namespace

// TCP_USER_TIMEOUT is not set: it kills connections to peers that live but read slowly (a long
// kernel, a stopped process). See silence().
TcpSocket::TcpSocket(Fd socket, Poller& poller, Pollable& owner, const TcpOptions& options)
    : socket_(std::move(socket)),
      poller_(poller),
      owner_(owner),
      interest_(EPOLLIN),
      next_look_(Deadline::after(kLookEvery)) {
  const int fd = socket_.get();
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (options.socket_buffer_bytes > 0) {
    const auto bytes = static_cast<int>(
        std::clamp<size_t>(options.socket_buffer_bytes, kSmallestSocketBuffer, INT_MAX));
    set_option(fd, SOL_SOCKET, SO_SNDBUF, bytes);
    set_option(fd, SOL_SOCKET, SO_RCVBUF, bytes);
  }
  options.congestion.settle(fd);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, options.broke ? kProbesBeforeAnother : kProbes);
  poller_.watch(fd, interest_, owner_);
  poller_.count_tried_sockets(+1);
}

// Copy short pieces together: the kernel sends one buffer faster than it parses an iovec.
ssize_t TcpSocket::send(std::span<iovec> pieces, size_t bytes) {
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  constexpr size_t kShort = 1024;
  ssize_t sent;
  if (bytes <= kShort) {
    std::array<std::byte, kShort> together;
    std::byte* end = together.data();
    for (const iovec& piece : pieces) {
      if (piece.iov_len > 0) std::memcpy(end, piece.iov_base, piece.iov_len);
      end += piece.iov_len;
    }
    do sent = ::send(fd(), together.data(), bytes, kFlags);
    while (sent < 0 && errno == EINTR);
    return sent;
  }
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  do sent = ::sendmsg(fd(), &message, kFlags);
  while (sent < 0 && errno == EINTR);
  return sent;
}

ssize_t TcpSocket::receive(std::span<iovec> pieces) {
  ssize_t got;
  do {
    if (pieces.size() == 1) {  // small messages
      got = ::recv(fd(), pieces[0].iov_base, pieces[0].iov_len, MSG_DONTWAIT);
    } else {
      msghdr message{};
      message.msg_iov = pieces.data();
      message.msg_iovlen = pieces.size();
      got = ::recvmsg(fd(), &message, MSG_DONTWAIT);
    }
  } while (got < 0 && errno == EINTR);
  return got;
}

size_t TcpSocket::unconfirmed() const {
  int bytes = 0;
  return ::ioctl(fd(), SIOCOUTQ, &bytes) == 0 ? static_cast<size_t>(bytes)
                                              : std::numeric_limits<size_t>::max();
}

void TcpSocket::set_interest(unsigned events) {
  if (!watched_ || events == interest_) return;
  interest_ = events;
  poller_.rewatch(fd(), events, owner_);
}

void TcpSocket::unwatch() {
  if (!std::exchange(watched_, false)) return;
  poller_.forget(fd());
  poller_.count_tried_sockets(-1);
}

// A live host's kernel acknowledges even if the process does not read: then TCP sends window
// probes, not retransmissions, which are not counted here.
TcpSocket::Silence TcpSocket::silence() const {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(fd(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
  return {std::chrono::milliseconds(info.tcpi_last_ack_recv), info.tcpi_retransmits};
}

TcpSocket::Silence TcpSocket::look_at_silence() {
  if (!next_look_.expired()) return {};
  next_look_ = Deadline::after(kLookEvery);
  return silence();
}

void TcpSocket::break_off() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  unwatch();
  socket_.reset();
}

void TcpSocket::discard(std::span<std::byte> buffer) {
  for (int i = 0; i < 256; ++i)
    if (::recv(fd(), buffer.data(), buffer.size(), MSG_DONTWAIT) <= 0) break;
}

}  // namespace hccl_like
