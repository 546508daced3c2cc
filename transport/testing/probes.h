#pragma once
// For tests: how the kernel tries a connection on which nothing is under way.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>

namespace hccl_like {

// Whether it does, the seconds of silence before, those between two probes, and how many may stay
// without an answer.
inline std::array<int, 4> probes(int socket) {
  static constexpr int kOptions[4][2] = {{SOL_SOCKET, SO_KEEPALIVE},
                                         {IPPROTO_TCP, TCP_KEEPIDLE},
                                         {IPPROTO_TCP, TCP_KEEPINTVL},
                                         {IPPROTO_TCP, TCP_KEEPCNT}};
  std::array<int, 4> values{-1, -1, -1, -1};
  for (size_t i = 0; i < values.size(); ++i) {
    socklen_t length = sizeof values[i];
    ::getsockopt(socket, kOptions[i][0], kOptions[i][1], &values[i], &length);
  }
  return values;
}

// A host that is gone is missed after four seconds, and two seconds of silence break nothing.
inline constexpr std::array<int, 4> kProbesOfAWire{1, 1, 1, 3};

}  // namespace hccl_like
