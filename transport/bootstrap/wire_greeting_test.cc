#include "transport/bootstrap/wire_greeting.h"

#include <gtest/gtest.h>

#include <array>

#include "transport/testing/sim_wire.h"

namespace hccl_like {
namespace {

using State = WireGreeting::State;

Identity identity(char id, char nonce) {
  return make_identity({}, std::string(kIdDigits, id), std::string(kNonceDigits, nonce));
}

// Two processes and a wire between them. Each thinks that it knows the other.
struct Handshake {
  explicit Handshake(const SimOptions& options = {}) {
    SimPair pair = make_sim_pair(options);
    cut = std::move(pair.cut);
    wires = {std::move(pair.a), std::move(pair.b)};
  }
  void begin() {
    connector = std::make_unique<WireGreeting>(std::move(wires[0]), WireSide::kConnector, self[0],
                                               expected[0]);
    acceptor = std::make_unique<WireGreeting>(std::move(wires[1]), WireSide::kAcceptor, self[1],
                                              expected[1]);
  }
  void step(int times) {
    for (int i = 0; i < times; ++i) {
      connector->step();
      acceptor->step();
    }
  }

  std::array<Identity, 2> self{identity('a', '1'), identity('b', '2')};
  std::array<Identity, 2> expected{self[1], self[0]};
  std::array<std::unique_ptr<Wire>, 2> wires;
  std::function<void()> cut;
  std::unique_ptr<WireGreeting> connector, acceptor;
};

TEST(WireGreeting, LeavesTheWireAtTheFirstByteOfItsUsers) {
  // Bytes come singly and late.
  Handshake handshake({.chunk = 1, .delay = 7});
  handshake.begin();
  handshake.step(10'000);
  ASSERT_EQ(handshake.connector->step(), State::kDone);
  ASSERT_EQ(handshake.acceptor->step(), State::kDone);
  const auto from = handshake.acceptor->take(), to = handshake.connector->take();
  const std::byte byte{42};
  const ConstRegion region{&byte, 1};
  while (from->write({&region, 1}) == 0) {
  }
  std::byte got{};
  while (to->read({&got, 1}) == 0) {
  }
  EXPECT_EQ(got, byte);
}

TEST(WireGreeting, AProcessThatCannotProveWhoItIsIsNotAccepted) {
  Handshake handshake;
  handshake.expected[0] = identity('b', '9');  // the connector has not read the store
  handshake.begin();
  handshake.step(10);
  EXPECT_EQ(handshake.acceptor->step(), State::kFailed);
  EXPECT_EQ(handshake.acceptor->cause(), "it does not greet as the peer would");
  EXPECT_EQ(handshake.connector->step(), State::kUnderWay);
}

TEST(WireGreeting, AnotherProcessAtTheAddressIsNoticed) {
  Handshake handshake;
  // Says everything right but for the tag.
  const std::unique_ptr<Wire> impostor = std::move(handshake.wires[1]);
  WireGreeting connector(std::move(handshake.wires[0]), WireSide::kConnector, handshake.self[0],
                         handshake.expected[0]);
  const std::string answer = std::string(greeting::kAnswerMagic) +
                             std::string(greeting::kAnswerBytes - greeting::kAnswerMagic.size(), 0);
  const ConstRegion region{reinterpret_cast<const std::byte*>(answer.data()), answer.size()};
  ASSERT_EQ(impostor->write({&region, 1}), answer.size());
  for (int i = 0; i < 10; ++i) connector.step();
  EXPECT_EQ(connector.step(), State::kFailed);
  EXPECT_EQ(connector.cause(), "another process answers there");
}

TEST(WireGreeting, AnotherPeerThanTheOneThatIsWaitedForIsRefused) {
  Handshake handshake;
  handshake.expected[1] = identity('c', '1');
  handshake.begin();
  handshake.step(10);
  EXPECT_EQ(handshake.acceptor->step(), State::kFailed);
}

TEST(WireGreeting, AWireThatBreaksIsGivenUpWithItsReason) {
  Handshake handshake;
  handshake.begin();
  handshake.connector->step();
  handshake.cut();
  handshake.step(10);
  EXPECT_EQ(handshake.connector->step(), State::kFailed);
  EXPECT_EQ(handshake.acceptor->step(), State::kFailed);
  EXPECT_FALSE(handshake.connector->cause().empty());
}

TEST(WireGreeting, SaysThatNobodyAnswersWhileItWaits) {
  Handshake handshake;
  handshake.begin();
  EXPECT_EQ(handshake.connector->step(), State::kUnderWay);
  EXPECT_EQ(handshake.connector->cause(), "no answer");
}

}  // namespace
}  // namespace hccl_like
