#include "transport/wire/watched_wire.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>

#include "transport/tcp/tcp_wire.h"
#include "transport/testing/connected_sockets.h"
#include "transport/testing/link_contract.h"
#include "transport/testing/link_endings_contract.h"
#include "transport/testing/probes.h"
#include "transport/testing/wire_contract.h"

namespace hccl_like {
namespace {

// Both wires with their lifelines; `sockets` is what the bytes go over.
WirePair watched_wires(std::array<Fd, 2> sockets, bool with_lifelines = true) {
  WirePair pair;
  auto lifelines = connected_sockets(AF_INET);
  for (size_t i = 0; i < 2; ++i) {
    auto bytes = std::make_unique<TcpWire>(std::move(sockets[i]), *pair.pollers[i],
                                           TcpOptions{.socket_buffer_bytes = 1}, "a test:1");
    auto wire = std::make_unique<WatchedWire>(std::move(bytes), *pair.pollers[i], "a test");
    if (with_lifelines) wire->attach(std::move(lifelines[i]));
    pair.ends[i] = std::move(wire);
  }
  return pair;
}

struct WatchedWires {
  static constexpr bool kThreads = true;
  static WirePair make() { return watched_wires(connected_sockets(AF_INET)); }
};
struct UnwatchedWires {
  static constexpr bool kThreads = true;
  static WirePair make() {
    return watched_wires(connected_sockets(AF_INET), /*with_lifelines=*/false);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Watched, WireContract, WatchedWires);
INSTANTIATE_TYPED_TEST_SUITE_P(NotYetWatched, WireContract, UnwatchedWires);
INSTANTIATE_TYPED_TEST_SUITE_P(Watched, LinkContract, WatchedWires);
INSTANTIATE_TYPED_TEST_SUITE_P(Watched, LinkEndings, WatchedWires);

// One end of a connection whose other ends, of bytes and of the lifeline, the test holds.
struct Watch {
  Watch() {
    auto bytes = connected_sockets(AF_INET), lifelines = connected_sockets(AF_INET);
    peer = std::move(bytes[1]);
    peers_lifeline = std::move(lifelines[1]);
    wire = std::make_unique<WatchedWire>(
        std::make_unique<TcpWire>(std::move(bytes[0]), poller, TcpOptions{}, "a test:1"), poller,
        "a test");
    wire->attach(std::move(lifelines[0]));
  }
  // Drives until the wire has failed; the bytes that came before that.
  std::string last_words() {
    std::string words;
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    while (wire->failure() == nullptr && !deadline.expired()) {
      poller.poll();
      const auto view = wire->peek();
      words.append(reinterpret_cast<const char*>(view.data()), view.size());
      if (!view.empty()) wire->release(view.size());
    }
    return words;
  }

  Poller poller;
  Fd peer, peers_lifeline;
  std::unique_ptr<WatchedWire> wire;
};

TEST(WatchedWire, EndsWithItsLifelineThoughItsTransportNoticesNothing) {
  Watch watch;
  watch.peers_lifeline.reset();
  watch.last_words();
  ASSERT_NE(watch.wire->failure(), nullptr);
  EXPECT_EQ(
      *watch.wire->failure(),
      (Error{ErrorCode::kPeerLost, "the tcp connection to a test is gone: its process has ended"}));
}

TEST(WatchedWire, HasItsLifelineTriedWhileNothingIsUnderWay) {
  auto bytes = connected_sockets(AF_INET), lifelines = connected_sockets(AF_INET);
  Poller poller;
  WatchedWire wire(std::make_unique<TcpWire>(std::move(bytes[0]), poller, TcpOptions{}, "a test:1"),
                   poller, "a test");
  const int lifeline = lifelines[0].get();
  wire.attach(std::move(lifelines[0]));
  EXPECT_EQ(probes(lifeline), kProbesOfAWire);
  int milliseconds = 0;
  socklen_t length = sizeof milliseconds;
  ::getsockopt(lifeline, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, &length);
  EXPECT_EQ(milliseconds, 4000) << "while bytes of the handshake are under way";
}

TEST(WatchedWire, AResetOfTheLifelineIsAnEndToo) {
  Watch watch;
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(watch.peers_lifeline.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  watch.peers_lifeline.reset();
  watch.last_words();
  ASSERT_NE(watch.wire->failure(), nullptr);
  EXPECT_EQ(watch.wire->failure()->message,
            "the tcp connection to a test is gone: its process or host has ended");
}

TEST(WatchedWire, WhatThePeerWroteBeforeComesFirst) {
  Watch watch;
  const std::string words(200'000, 'x');
  ASSERT_EQ(::send(watch.peer.get(), words.data(), words.size(), 0),
            static_cast<ssize_t>(words.size()));
  watch.peers_lifeline.reset();
  EXPECT_EQ(watch.last_words(), words);
}

TEST(WatchedWire, BytesThatNobodyHasReadPutTheEndOff) {
  Watch watch;
  ASSERT_EQ(::send(watch.peer.get(), "word", 4, 0), 4);
  watch.peers_lifeline.reset();
  const Deadline deadline = Deadline::after(std::chrono::seconds(1));
  while (!deadline.expired()) {
    watch.poller.poll();
    watch.wire->peek();
    ASSERT_EQ(watch.wire->failure(), nullptr);
  }
  EXPECT_EQ(watch.last_words(), "word");
}

TEST(WatchedWire, TellsWhoeverIsAboutToSleep) {
  Watch watch;
  EXPECT_TRUE(watch.wire->prepare_sleep({}));
  watch.wire->end_sleep();
  watch.peers_lifeline.reset();
  watch.last_words();
  EXPECT_FALSE(watch.wire->prepare_sleep({}));
  watch.wire->end_sleep();
}

// A watch that can have another lifeline, whose first one has been reset.
struct ResetWatch : Watch {
  ResetWatch() {
    auto bytes = connected_sockets(AF_INET), lifelines = connected_sockets(AF_INET);
    peer = std::move(bytes[1]);
    wire = std::make_unique<WatchedWire>(
        std::make_unique<TcpWire>(std::move(bytes[0]), poller, TcpOptions{}, "a test:1"), poller,
        "a test", broke);
    wire->attach(std::move(lifelines[0]));
    reset(std::move(lifelines[1]));
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    while (!*broke && !deadline.expired()) poller.poll();
  }
  static void reset(Fd socket) {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  std::shared_ptr<bool> broke = std::make_shared<bool>(false);
};

TEST(WatchedWire, TakesAnotherLifelineInThePlaceOfOneThatBreaks) {
  ResetWatch watch;
  ASSERT_TRUE(*watch.broke);
  EXPECT_TRUE(watch.wire->misses_lifeline());
  EXPECT_EQ(watch.wire->cause(), "its process or host has ended");
  auto lifelines = connected_sockets(AF_INET);
  watch.wire->attach(std::move(lifelines[0]));
  EXPECT_FALSE(watch.wire->misses_lifeline());
  ASSERT_EQ(::send(watch.peer.get(), "word", 4, 0), 4);
  lifelines[1].reset();
  EXPECT_EQ(watch.last_words(), "word");
  EXPECT_EQ(watch.wire->failure()->message,
            "the tcp connection to a test is gone: its process has ended");
}

TEST(WatchedWire, IsGivenUpWhereNoOtherLifelineComesAbout) {
  ResetWatch watch;
  watch.wire->give_up(watch.wire->cause());
  EXPECT_FALSE(watch.wire->misses_lifeline());
  watch.last_words();
  EXPECT_EQ(watch.wire->failure()->message,
            "the tcp connection to a test is gone: its process or host has ended");
}

TEST(WatchedWire, MissesALifelineOnlyOnce) {
  Watch watch;
  EXPECT_FALSE(watch.wire->misses_lifeline());
  watch.peers_lifeline.reset();
  watch.last_words();
  EXPECT_FALSE(watch.wire->misses_lifeline());
}

}  // namespace
}  // namespace hccl_like
