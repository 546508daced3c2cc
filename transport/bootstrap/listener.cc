#include "transport/bootstrap/listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "transport/network/address.h"
#include "transport/security/random.h"

namespace hccl_like {
namespace {

// All ranks of a large job may arrive at once; the kernel caps this at net.core.somaxconn.
constexpr int kBacklog = 4096;

// Attempts to find a system-chosen port that is free at all addresses.
constexpr int kChoices = 64;

Fd open_reserve() { return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

void set_option(int fd, int level, int option) {
  const int on = 1;
  ::setsockopt(fd, level, option, &on, sizeof on);
}

// Invalid if the port is taken there; throws on other errors. SO_REUSEADDR permits a given port
// while connections of an earlier process are in TIME_WAIT. On Linux two processes can then bind
// one port while neither listens, so listen() may also find it taken.
Fd listen_at(const Address& address, int port, bool port_is_given) {
  Fd socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) throw_system("cannot make a tcp socket");
  if (port_is_given) set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR);
  if (address.family() == AF_INET6)
    set_option(socket.get(), IPPROTO_IPV6, IPV6_FREEBIND);
  else
    set_option(socket.get(), IPPROTO_IP, IP_FREEBIND);
  sockaddr_storage name;
  const socklen_t length = address.with_port(static_cast<uint16_t>(port), name);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), length) == 0 &&
      ::listen(socket.get(), kBacklog) == 0)
    return socket;
  if (errno == EADDRINUSE) return {};
  throw_system("cannot listen at " + with_port(address, static_cast<uint16_t>(port)));
}

uint16_t port_in(const sockaddr_storage& address) {
  sockaddr_in6 v6;  // the port has the same offset in both families
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
  // Errors that accept(2) attributes to the new connection, not to the listening socket.
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

std::vector<Listener> Listener::tcp(std::span<const Address> addresses, PortRange range) {
  const auto reserve = std::make_shared<Fd>(open_reserve());
  const int first = range.any() ? 1 : range.low, last = range.any() ? kChoices : range.high;
  for (int port = first; port <= last; ++port)
    if (auto all = at_port(addresses, range.any() ? 0 : port, !range.any(), reserve);
        all.size() == addresses.size())
      return all;
  throw_error(
      ErrorCode::kSystem,
      range.any()
          ? "the system has no tcp port that is free at all addresses of this host"
          : "every tcp port of HCCL_LIKE_PORT_RANGE=" + range.to_string() +
                " is taken on this host: each rank needs one, so give a larger range or end what "
                "listens there");
}

Listener Listener::tcp(const Address& address, PortRange range) {
  return std::move(tcp(std::span(&address, 1), range).front());
}

// Port 0: the first address's port applies to all. Returns fewer listeners if the port is taken.
std::vector<Listener> Listener::at_port(std::span<const Address> addresses, int port,
                                        bool port_is_given, const Reserve& reserve) {
  std::vector<Listener> all;
  for (const Address& address : addresses) {
    Listener one;
    one.socket_ = listen_at(address, port, port_is_given);
    if (!one.socket_.valid()) break;
    one.port_ = port_of(one.socket_.get());
    one.local_ = address.is_loopback();
    one.reserve_ = reserve;
    port = one.port_;
    all.push_back(std::move(one));
  }
  return all;
}

// A socket bound to an explicit address and port keeps both.
void Listener::refuse() {
  if (::shutdown(socket_.get(), SHUT_RD) != 0) throw_system("cannot stop listening");
}

void Listener::listen() {
  if (::listen(socket_.get(), kBacklog) != 0)
    throw_system("cannot listen on tcp port " + std::to_string(port_) + " again");
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
  listener.reserve_ = std::make_shared<Fd>(open_reserve());
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
  reserve_->reset();
  Fd dropped(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  dropped.reset();
  *reserve_ = open_reserve();
}

}  // namespace hccl_like
