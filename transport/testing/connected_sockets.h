#pragma once
// For tests: two ends of a TCP connection in this process.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace hccl_like {

// Two connected sockets over a loopback address.
inline std::array<Fd, 2> connected_sockets(int family) {
  const Fd listener(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  address.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET)
    reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  else
    reinterpret_cast<sockaddr_in6&>(address).sin6_addr = in6addr_loopback;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.get(), raw, length) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), raw, &length) != 0)
    throw_system("cannot listen on loopback");
  std::array<Fd, 2> ends;
  ends[0] = Fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(ends[0].get(), raw, length) != 0) throw_system("cannot connect to loopback");
  ends[1] = Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return ends;
}

}  // namespace hccl_like
