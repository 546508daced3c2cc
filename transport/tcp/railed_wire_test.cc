#include "transport/tcp/railed_wire.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <string>

#include "transport/testing/connected_sockets.h"
#include "transport/testing/link_endings_contract.h"
#include "transport/testing/wire_contract.h"

namespace hccl_like {
namespace {

const TcpOptions kTight{.socket_buffer_bytes = 1, .receive_buffer_bytes = 8192};

std::unique_ptr<TcpWire> rail(Fd socket, Poller& poller, const TcpOptions& tcp, size_t index) {
  return std::make_unique<TcpWire>(std::move(socket), poller, tcp, "rail " + std::to_string(index));
}

// Two ends with their first rail only.
struct Ends {
  explicit Ends(const RailOptions& rails, const TcpOptions& of = {}) : tcp(of) {
    auto sockets = connected_sockets(AF_INET);
    for (size_t i = 0; i < 2; ++i) {
      auto wire = std::make_unique<RailedWire>(
          rail(std::move(sockets[i]), *pair.pollers[i], tcp, 0), rails);
      ends[i] = wire.get();
      pair.ends[i] = std::move(wire);
    }
  }
  void attach(size_t index, bool first_end = true, bool second_end = true) {
    auto sockets = connected_sockets(AF_INET);
    for (size_t i = 0; i < 2; ++i)
      if (i == 0 ? first_end : second_end)
        ends[i]->attach(index, rail(std::move(sockets[i]), *pair.pollers[i], tcp, index));
  }
  TcpOptions tcp;
  WirePair pair;
  std::array<RailedWire*, 2> ends{};
};

WirePair railed(const RailOptions& options, const TcpOptions& tcp) {
  Ends ends(options, tcp);
  for (size_t i = 1; i < options.rails; ++i) ends.attach(i);
  return std::move(ends.pair);
}

// Every stripe boundary is met often, and all rails from the first byte on.
struct ThreeRails {
  static constexpr bool kThreads = true;
  static WirePair make() {
    return railed({.rails = 3, .stripe_bytes = 4099, .first_bytes = 0}, {});
  }
};
struct ThreeTightRails {
  static constexpr bool kThreads = true;
  static WirePair make() {
    return railed({.rails = 3, .stripe_bytes = 4096, .first_bytes = 0}, kTight);
  }
};
struct TwoRails {
  static constexpr bool kThreads = true;
  static WirePair make() { return railed({.rails = 2, .first_bytes = 100'003}, {}); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(ThreeRails, WireContract, ThreeRails);
INSTANTIATE_TYPED_TEST_SUITE_P(TightRails, WireContract, ThreeTightRails);
INSTANTIATE_TYPED_TEST_SUITE_P(TwoRails, WireContract, TwoRails);
INSTANTIATE_TYPED_TEST_SUITE_P(TightRails, LinkEndings, ThreeTightRails);

size_t write(Wire& wire, uint64_t begin, size_t bytes) {
  const auto stream = stream_bytes(begin, bytes);
  const ConstRegion region{stream.data(), stream.size()};
  return wire.write({&region, 1});
}

std::vector<std::byte> read(Wire& wire, Poller& poller, size_t bytes) {
  std::vector<std::byte> got(bytes);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  size_t done = 0;
  while (done < bytes && wire.failure() == nullptr && !deadline.expired()) {
    done += wire.read(std::span(got).subspan(done));
    poller.poll();
  }
  got.resize(done);
  return got;
}

// Everything that can be written without anybody reading.
size_t fill(Wire& wire, uint64_t begin = 0) {
  size_t written = 0;
  while (const size_t taken = write(wire, begin + written, 5'003)) written += taken;
  return written;
}

void until(const std::function<bool()>& done) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (!done()) ASSERT_FALSE(deadline.expired());
}

TEST(RailedWire, UsesItsFirstRailUntilEnoughHasPassed) {
  Ends ends({.rails = 2, .stripe_bytes = 4096, .first_bytes = 40'000});
  EXPECT_FALSE(ends.ends[0]->wants_rails());
  EXPECT_EQ(write(*ends.ends[0], 0, 10'000), 10'000u);
  EXPECT_TRUE(ends.ends[0]->wants_rails()) << "a quarter has passed";
  EXPECT_FALSE(ends.ends[1]->wants_rails()) << "nothing has been read";
  EXPECT_TRUE(ends.ends[1]->misses_any());
  EXPECT_EQ(read(*ends.ends[1], *ends.pair.pollers[1], 10'000), stream_bytes(0, 10'000));
  EXPECT_TRUE(ends.ends[1]->wants_rails());
}

TEST(RailedWire, WaitsForARailThatHasNotCome) {
  Ends ends({.rails = 3, .stripe_bytes = 5'000, .first_bytes = 40'000});
  EXPECT_EQ(write(*ends.ends[0], 0, 60'000), 40'000u);
  EXPECT_EQ(write(*ends.ends[0], 40'000, 1), 0u);
  EXPECT_EQ(read(*ends.ends[1], *ends.pair.pollers[1], 40'000), stream_bytes(0, 40'000));
  EXPECT_TRUE(ends.ends[1]->peek().empty());
  ends.attach(2);
  EXPECT_EQ(write(*ends.ends[0], 40'000, 1), 0u) << "the other one is the next";
  EXPECT_TRUE(ends.ends[0]->misses(1));
  EXPECT_FALSE(ends.ends[0]->misses(2));
  EXPECT_FALSE(ends.ends[0]->misses(3)) << "there is none of this number";
  EXPECT_TRUE(ends.ends[0]->misses_any());
  ends.attach(1);
  EXPECT_FALSE(ends.ends[0]->misses_any());
  EXPECT_FALSE(ends.ends[0]->wants_rails());
  EXPECT_EQ(write(*ends.ends[0], 40'000, 20'001), 20'001u);
  EXPECT_EQ(read(*ends.ends[1], *ends.pair.pollers[1], 20'001), stream_bytes(40'000, 20'001));
}

TEST(RailedWire, GivesEveryRailItsShare) {
  constexpr size_t kStripe = 5'000;
  std::vector<std::array<Fd, 2>> sockets;
  Poller poller;
  for (int i = 0; i < 3; ++i) sockets.push_back(connected_sockets(AF_INET));
  RailedWire wire(rail(std::move(sockets[0][0]), poller, {}, 0),
                  {.rails = 3, .stripe_bytes = kStripe, .first_bytes = 7'000});
  for (size_t i = 1; i < 3; ++i) wire.attach(i, rail(std::move(sockets[i][0]), poller, {}, i));
  EXPECT_EQ(write(wire, 0, 7'000 + 3 * kStripe + 10), 7'000u + 3 * kStripe + 10);
  const auto arrived = [&](size_t i) {
    std::vector<std::byte> bytes(20'000);
    bytes.resize(static_cast<size_t>(::recv(sockets[i][1].get(), bytes.data(), bytes.size(), 0)));
    return bytes;
  };
  auto first = stream_bytes(0, 7'000);
  const auto last = stream_bytes(7'000 + 2 * kStripe, kStripe);
  first.insert(first.end(), last.begin(), last.end());
  EXPECT_EQ(arrived(0), first);
  auto second = stream_bytes(7'000, kStripe);
  const auto again = stream_bytes(7'000 + 3 * kStripe, 10);
  second.insert(second.end(), again.begin(), again.end());
  EXPECT_EQ(arrived(1), second);
  EXPECT_EQ(arrived(2), stream_bytes(7'000 + kStripe, kStripe));
}

TEST(RailedWire, HoldsMoreUnderWayThanOneConnection) {
  Ends one({.rails = 1, .stripe_bytes = 4096, .first_bytes = 0}, kTight);
  Ends four({.rails = 4, .stripe_bytes = 4096, .first_bytes = 0}, kTight);
  for (size_t i = 1; i < 4; ++i) four.attach(i);
  EXPECT_GT(fill(*four.ends[0]), 2 * fill(*one.ends[0]));
}

TEST(RailedWire, WaitsInSleepForTheRailWhoseTurnItIs) {
  Ends ends({.rails = 2, .stripe_bytes = 4096, .first_bytes = 0});
  ends.attach(1);
  EXPECT_TRUE(ends.ends[1]->prepare_sleep({}));
  EXPECT_EQ(write(*ends.ends[0], 0, 1), 1u);
  ends.pair.pollers[1]->sleep(Deadline::after(std::chrono::seconds(20)));
  ends.ends[1]->end_sleep();
  until([&] { return ends.ends[1]->peek().size() == 1; });
  EXPECT_FALSE(ends.ends[1]->prepare_sleep({}));
  ends.ends[1]->end_sleep();
}

TEST(RailedWire, OneRailThatBreaksEndsItAtBothEnds) {
  Ends ends({.rails = 2, .stripe_bytes = 4096, .first_bytes = 40'000});
  auto sockets = connected_sockets(AF_INET);
  ends.ends[0]->attach(1, rail(std::move(sockets[0]), *ends.pair.pollers[0], {}, 1));
  sockets[1].reset();
  EXPECT_EQ(write(*ends.ends[1], 0, 10), 10u);
  EXPECT_EQ(read(*ends.ends[0], *ends.pair.pollers[0], 10), stream_bytes(0, 10));
  until([&] {
    ends.pair.pollers[0]->poll();
    if (ends.ends[0]->prepare_sleep({})) ends.ends[0]->end_sleep();
    return ends.ends[0]->failure() != nullptr;
  });
  EXPECT_EQ(*ends.ends[0]->failure(),
            (Error{ErrorCode::kPeerLost,
                   "the tcp connection to rail 1 is gone: the peer closed the connection"}));
  EXPECT_EQ(write(*ends.ends[0], 0, 1), 0u);
  ends.pair.ends[0].reset();
  until([&] {
    ends.pair.pollers[1]->poll();
    ends.ends[1]->peek();
    return ends.ends[1]->failure() != nullptr;
  });
}

TEST(RailedWire, IsGivenUpWithTheReasonOfItsOwner) {
  Ends ends({.rails = 2});
  ends.ends[0]->give_up({ErrorCode::kPeerLost, "no second rail"});
  ends.ends[0]->give_up({ErrorCode::kPeerLost, "and no third"});
  EXPECT_EQ(ends.ends[0]->failure()->message, "no second rail");
  EXPECT_FALSE(ends.ends[0]->wants_rails());
}

TEST(RailedWire, ReadsWhatHadArrivedOnEveryRailWhenItWasGivenUp) {
  auto broke = std::make_shared<bool>(false);
  Ends ends({.rails = 2, .stripe_bytes = 4096, .first_bytes = 0}, {.broke = broke});
  ends.attach(1);
  EXPECT_EQ(write(*ends.ends[0], 0, 20'000), 20'000u);
  until([&] { return ends.ends[0]->flush(); });
  ends.ends[1]->rail(0)->stop("a test");
  ends.ends[1]->give_up({ErrorCode::kPeerLost, "it has left"});
  EXPECT_TRUE(ends.ends[1]->over());
  EXPECT_EQ(ends.ends[1]->failure(), nullptr);
  EXPECT_EQ(read(*ends.ends[1], *ends.pair.pollers[1], 20'000), stream_bytes(0, 20'000));
  EXPECT_TRUE(read(*ends.ends[1], *ends.pair.pollers[1], 1).empty());
  EXPECT_EQ(ends.ends[1]->failure()->message, "it has left");
}

TEST(RailedWire, RefusesStripesThatAPeekDoesNotFitIn) {
  Poller poller;
  const auto with = [&](const RailOptions& options) {
    auto sockets = connected_sockets(AF_INET);
    RailedWire wire(rail(std::move(sockets[0]), poller, {}, 0), options);
  };
  EXPECT_THROW(with({.rails = 0}), Exception);
  EXPECT_THROW(with({.rails = 2, .stripe_bytes = 4095}), Exception);
}

}  // namespace
}  // namespace hccl_like
