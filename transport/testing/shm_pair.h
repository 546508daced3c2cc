#pragma once
// Test and benchmark fixture: two ends of a shm wire, in one process or across a fork.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <utility>

#include "transport/shm/handshake.h"
#include "transport/testing/wire_pair.h"

namespace hccl_like {

inline std::array<Fd, 2> make_socket_pair() {
  std::array<int, 2> fds{-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()), 0);
  return {Fd(fds[0]), Fd(fds[1])};
}

// `commons`: of both ends, or null; must outlive them.
inline WirePair make_shm_pair(size_t ring_bytes, const Commons* commons = nullptr) {
  WirePair pair;
  auto sockets = make_socket_pair();
  ShmHandshake connector(std::move(sockets[0]), ShmHandshake::Side::kConnector, ring_bytes,
                         *pair.pollers[0], commons);
  ShmHandshake acceptor(std::move(sockets[1]), ShmHandshake::Side::kAcceptor, 0, *pair.pollers[1],
                        commons);
  EXPECT_FALSE(acceptor.step());
  EXPECT_FALSE(connector.step());
  EXPECT_TRUE(acceptor.step()) << acceptor.cause();
  EXPECT_TRUE(connector.step()) << connector.cause();
  pair.ends = {connector.take(), acceptor.take()};
  return pair;
}

// Creates one end. The other process does the same with the other socket.
inline std::unique_ptr<Wire> make_shm_end(Fd socket, bool connector, size_t ring_bytes,
                                          Poller& poller, const Commons* commons = nullptr) {
  ShmHandshake handshake(std::move(socket),
                         connector ? ShmHandshake::Side::kConnector : ShmHandshake::Side::kAcceptor,
                         ring_bytes, poller, commons);
  while (!handshake.step()) poller.sleep(Deadline::never());
  return handshake.take();
}

}  // namespace hccl_like
