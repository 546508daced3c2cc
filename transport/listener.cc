#include "transport/listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "transport/address.h"
#include "transport/bootstrap_random.h"

namespace hccl_like {
namespace {

// Every rank of a large job may arrive at once; the kernel cuts this to net.core.somaxconn.
constexpr int kBacklog = 4096;

Fd open_reserve() { return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

Fd tcp_socket(int family) {
  return Fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// True when it listens; false if the port is taken; throws on anything else.
bool listen_on(int fd, int family, uint16_t port) {
  sockaddr_storage address{};
  socklen_t length = sizeof(sockaddr_in);
  if (family == AF_INET6) {
    const sockaddr_in6 any{
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_any};
    std::memcpy(&address, &any, length = sizeof any);
  } else {
    const sockaddr_in any{
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_ANY)}};
    std::memcpy(&address, &any, length = sizeof any);
  }
  // Two sockets may bind one port under SO_REUSEADDR as long as neither listens, so listen() can find it taken too.
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
      ::listen(fd, kBacklog) == 0)
    return true;
  if (errno == EADDRINUSE) return false;
  throw_system("cannot listen on tcp port " + std::to_string(port));
}

uint16_t port_in(const sockaddr_storage& address) {
  sockaddr_in6 v6;  // the port lies at the same place in both families
  std::memcpy(&v6, &address, sizeof v6);
  return ntohs(v6.sin6_port);
}

uint16_t port_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw_system("cannot read the port of a listening socket");
  return port_in(address);
}

bool worth_another_try(int error_number) {
  // What accept(2) lists as errors of the connection that was taken from the queue, not of the listening socket.
  switch (error_number) {
    case EINTR:
    case ECONNABORTED:
    case ENETDOWN:
    case EPROTO:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH:
    case EPERM:
      return true;
    default:
      return false;
  }
}

}  // namespace

Listener Listener::tcp(PortRange range) {
  Listener listener;
  const int first = range.any() ? 0 : range.low, last = range.any() ? 0 : range.high;
  for (int port = first; port <= last; ++port) {
    int family = AF_INET6;
    Fd socket = tcp_socket(family);
    if (!socket.valid()) socket = tcp_socket(family = AF_INET);
    if (!socket.valid()) throw_system("cannot make a tcp socket");
    // SO_REUSEADDR lets a fixed port be taken again while connections of an earlier process are in TIME_WAIT. On Linux
    // it never lets two processes listen on one port.
    const int on = 1, off = 0;
    if (!range.any()) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    bool listens;
    try {
      listens = listen_on(socket.get(), family, static_cast<uint16_t>(port));
    } catch (const Exception&) {
      if (family == AF_INET) throw;
      // IPv6 sockets exist but IPv6 is disabled: bind says EADDRNOTAVAIL.
      socket = tcp_socket(AF_INET);
      if (!socket.valid()) throw_system("cannot make a tcp socket");
      if (!range.any()) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      listens = listen_on(socket.get(), AF_INET, static_cast<uint16_t>(port));
    }
    if (!listens) continue;
    listener.socket_ = std::move(socket);
    listener.port_ = port_of(listener.socket_.get());
    listener.reserve_ = open_reserve();
    return listener;
  }
  throw_error(ErrorCode::kSystem,
              "every tcp port of HCCL_LIKE_PORT_RANGE=" + range.to_string() +
                  " is taken on this host: each rank needs one, so give a larger range or end what "
                  "listens there");
}

Listener Listener::unix_abstract() {
  Listener listener;
  listener.socket_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener.socket_.valid()) throw_system("cannot make a UNIX socket");
  listener.name_ = "hccl-like-" + random_hex(16);

  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, listener.name_.data(), listener.name_.size());
  const auto length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + listener.name_.size());
  if (::bind(listener.socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(listener.socket_.get(), kBacklog) != 0)
    throw_system("cannot listen on an abstract UNIX socket");
  listener.reserve_ = open_reserve();
  return listener;
}

Arrival Listener::accept() {
  for (;;) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    Fd socket(::accept4(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length,
                        SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
      const auto from = Address::of(reinterpret_cast<const sockaddr*>(&address));
      return {std::move(socket), from ? with_port(*from, port_in(address)) : "this host"};
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      drop_one();
      return {};
    }
    if (!worth_another_try(errno)) return {};
  }
}

void Listener::drop_one() {
  if (!std::exchange(warned_, true))
    log_warn("cannot accept a connection: " + errno_text(errno) +
             "; raise the limit of open files (ulimit -n)");
  reserve_.reset();
  Fd dropped(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  dropped.reset();
  reserve_ = open_reserve();
}

}  // namespace hccl_like
