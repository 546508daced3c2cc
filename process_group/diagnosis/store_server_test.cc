#include "process_group/diagnosis/store_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "core/base/fd.h"

namespace hccl_like {
namespace {

// Closes the server's end of all connections to a port of this process, with or without a reset.
void close_connections(uint16_t port, bool reset) {
  const Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  for (int descriptor = 3; descriptor < 1024; ++descriptor) {
    sockaddr_in6 own{}, peer{};
    socklen_t size = sizeof own, peer_size = sizeof peer;
    // The ports of both families are at the same place.
    if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
        ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0 ||
        ntohs(own.sin6_port) != port)
      continue;
    const linger at_once{.l_onoff = reset ? 1 : 0, .l_linger = 0};
    ::setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    ::dup2(nothing.get(), descriptor);
  }
}

TEST(StoreServer, IsGoneOnceItsConnectionIsClosedOrReset) {
  for (const bool reset : {false, true}) {
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    store->set("key", std::vector<uint8_t>{1});
    EXPECT_FALSE(server_has_gone(*store));
    close_connections(store->getPort(), reset);
    EXPECT_TRUE(server_has_gone(*store)) << reset;
  }
}

}  // namespace
}  // namespace hccl_like
