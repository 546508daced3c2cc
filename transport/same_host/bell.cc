#include "transport/same_host/bell.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "core/base/error.h"

namespace hccl_like {

Bell::Place Bell::place(const std::string& name) {
  Place place;
  place.address.sun_family = AF_UNIX;
  const size_t bytes = std::min(name.size(), sizeof place.address.sun_path - 1);
  std::memcpy(place.address.sun_path + 1, name.data(), bytes);
  place.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  return place;
}

Bell::Bell(const std::string& name, Poller& poller)
    : poller_(poller), socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
  const Place own = place(name);
  if (!socket_.valid() ||
      ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&own.address), own.length) != 0)
    throw_system("cannot hang up the bell that peers on this host ring");
  poller_.watch(socket_.get(), EPOLLIN, *this);
}

Bell::~Bell() { poller_.forget(socket_.get()); }

void Bell::ring(const Place& place) const noexcept {
  const int saved = errno;
  const char nothing = 0;
  (void)::sendto(socket_.get(), &nothing, 1, MSG_DONTWAIT | MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(&place.address), place.length);
  errno = saved;
}

void Bell::ready(unsigned) {
  char nothing;
  for (int i = 0; i < 64 && ::recv(socket_.get(), &nothing, 1, MSG_DONTWAIT) >= 0; ++i) {
  }
}

}  // namespace hccl_like
