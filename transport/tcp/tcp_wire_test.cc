#include "transport/tcp/tcp_wire.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstring>

#include "core/base/error.h"
#include "transport/testing/connected_sockets.h"
#include "transport/testing/link_contract.h"
#include "transport/testing/link_endings_contract.h"
#include "transport/testing/probes.h"
#include "transport/testing/wire_contract.h"

namespace hccl_like {
namespace {

WirePair connected_wires(int family, const TcpOptions& options = {}) {
  WirePair pair;
  auto sockets = connected_sockets(family);
  for (size_t i = 0; i < 2; ++i)
    pair.ends[i] =
        std::make_unique<TcpWire>(std::move(sockets[i]), *pair.pollers[i], options, "a test:1");
  return pair;
}

struct TcpWires4 {
  static constexpr bool kThreads = true;
  static WirePair make() { return connected_wires(AF_INET); }
};
struct TcpWires6 {
  static constexpr bool kThreads = true;
  static WirePair make() { return connected_wires(AF_INET6); }
};
// The smallest buffers there are, so that every boundary is met often.
struct TightTcpWires {
  static constexpr bool kThreads = true;
  static WirePair make() {
    return connected_wires(AF_INET, {.socket_buffer_bytes = 1, .receive_buffer_bytes = 8192});
  }
};
struct TightTcpWires6 {
  static constexpr bool kThreads = true;
  static WirePair make() {
    return connected_wires(AF_INET6, {.socket_buffer_bytes = 1, .receive_buffer_bytes = 8192});
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp4, WireContract, TcpWires4);
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp6, WireContract, TcpWires6);
INSTANTIATE_TYPED_TEST_SUITE_P(TcpTight, WireContract, TightTcpWires);
// The suite looks at messages that are half way, which the kernel's own buffers are large enough to
// swallow whole.
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp4, LinkContract, TightTcpWires);
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp4, LinkEndings, TightTcpWires);
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp6, LinkContract, TightTcpWires6);
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp6, LinkEndings, TightTcpWires6);

size_t write_text(Wire& wire, std::string_view text) {
  const ConstRegion region{reinterpret_cast<const std::byte*>(text.data()), text.size()};
  return wire.write({&region, 1});
}

std::string read_text(Wire& wire, Poller& poller, size_t bytes) {
  std::string text(bytes, ' ');
  size_t done = 0;
  while (done < bytes && wire.failure() == nullptr) {
    done += wire.read(std::as_writable_bytes(std::span(text)).subspan(done));
    poller.poll();
  }
  return text.substr(0, done);
}

TEST(TcpWire, CountsAsASocketWhileItLives) {
  auto pair = connected_wires(AF_INET);
  EXPECT_EQ(pair.pollers[0]->sockets(), 1u);
  pair.ends[0].reset();
  EXPECT_EQ(pair.pollers[0]->sockets(), 0u);
}

TEST(TcpWire, StopsCountingWhenThePeerIsGone) {
  auto pair = connected_wires(AF_INET);
  pair.ends[1].reset();
  while (pair.ends[0]->failure() == nullptr) {
    pair.pollers[0]->poll();
    pair.ends[0]->peek();
  }
  EXPECT_EQ(pair.pollers[0]->sockets(), 0u);
  EXPECT_FALSE(pair.pollers[0]->poll()) << "a finished socket must not wake anybody";
}

TEST(TcpWire, NamesThePeerAndTheCauseWhenItIsGone) {
  auto pair = connected_wires(AF_INET);
  pair.ends[1].reset();
  while (pair.ends[0]->failure() == nullptr) {
    pair.pollers[0]->poll();
    pair.ends[0]->peek();
  }
  EXPECT_EQ(*pair.ends[0]->failure(),
            (Error{ErrorCode::kPeerLost,
                   "the tcp connection to a test:1 is gone: the peer closed the connection"}));
}

TEST(TcpWire, SendsFromMorePiecesThanOneCallTakes) {
  auto pair = connected_wires(AF_INET);
  std::vector<std::byte> data(101);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i);
  std::vector<ConstRegion> pieces;
  for (const std::byte& byte : data) pieces.push_back({&byte, 1});
  EXPECT_EQ(pair.ends[0]->write(pieces), 101u);
  const std::string text = read_text(*pair.ends[1], *pair.pollers[1], 101);
  EXPECT_EQ(std::memcmp(text.data(), data.data(), 101), 0);
}

// close() with unread bytes resets the connection, and a reset throws away what was not delivered
// yet.
TEST(TcpWire, LosesNothingOfWhatWasWrittenWhenItClosesWithUnreadBytes) {
  auto pair = connected_wires(AF_INET);
  EXPECT_EQ(write_text(*pair.ends[1], "nobody reads this"), 17u);
  std::string sent;
  for (;;) {
    const size_t taken =
        write_text(*pair.ends[0], std::string(100'000, static_cast<char>('a' + sent.size() % 26)));
    if (taken == 0) break;
    sent.append(taken, static_cast<char>('a' + sent.size() % 26));
  }
  pair.ends[0].reset();
  EXPECT_EQ(read_text(*pair.ends[1], *pair.pollers[1], sent.size()), sent);
}

TEST(TcpWire, DeliversWhatArrivedBeforeAReset) {
  auto sockets = connected_sockets(AF_INET);
  Poller poller;
  TcpWire wire(std::move(sockets[0]), poller, {}, "a test:1");
  ASSERT_EQ(::send(sockets[1].get(), "last words", 10, 0), 10);
  const linger reset{1, 0};
  ::setsockopt(sockets[1].get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  sockets[1].reset();
  while (write_text(wire, "x") != 0) {
  }
  EXPECT_EQ(wire.failure(), nullptr);
  EXPECT_EQ(read_text(wire, poller, 10), "last words");
  while (wire.failure() == nullptr) {
    poller.poll();
    wire.peek();
  }
  EXPECT_NE(wire.failure()->message.find("errno"), std::string::npos) << *wire.failure();
}

TEST(TcpWire, IsFlushedOnceThePeersKernelHasEverything) {
  auto pair = connected_wires(AF_INET);
  while (write_text(*pair.ends[0], std::string(65'536, 'x')) != 0) {
  }
  EXPECT_FALSE(pair.ends[0]->flush());
  std::vector<std::byte> sink(1 << 20);
  while (!pair.ends[0]->flush()) {
    pair.ends[1]->read(sink);
    pair.pollers[1]->poll();
  }
  EXPECT_EQ(pair.ends[0]->failure(), nullptr);
}

TEST(TcpWire, IsTriedWhileNothingIsUnderWay) {
  auto sockets = connected_sockets(AF_INET);
  const int fd = sockets[0].get();
  Poller poller;
  TcpWire wire(std::move(sockets[0]), poller, {}, "a test:1");
  EXPECT_EQ(probes(fd), kProbesOfAWire);
}

TEST(TcpWire, HasNoUserTimeoutSoASlowReaderKeepsItsConnection) {
  auto sockets = connected_sockets(AF_INET);
  const int fd = sockets[0].get();
  Poller poller;
  TcpWire wire(std::move(sockets[0]), poller, {}, "a test:1");
  int value = -1;
  socklen_t length = sizeof value;
  ASSERT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &length), 0);
  EXPECT_EQ(value, 0);
  ASSERT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &length), 0);
  EXPECT_EQ(value, 1);
}

}  // namespace
}  // namespace hccl_like
