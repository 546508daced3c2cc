// The door: who gets in, and what strangers cost.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <set>

#include "core/base/error.h"
#include "transport/bootstrap/acceptor.h"
#include "transport/bootstrap/connector.h"
#include "transport/testing/descriptors.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const JobKey kJob;

Fd connect_to(const Way& way) {
  Fd socket(::socket(way.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&way.address), way.length) != 0)
    socket.reset();
  return socket;
}

const Address kLoopback = *Address::parse("127.0.0.1");

// A valid hello. Tests make invalid ones from it.
std::string hello(const Identity& from, const Identity& to) {
  return greeting::Calling(from, to).hello();
}

class Door : public testing::Test {
 protected:
  Door() { port = acceptor.listeners().add(Listener::tcp(kLoopback, {})).port(); }

  Way loopback() const { return way_to(kLoopback, port); }
  Fd stranger() const { return connect_to(loopback()); }
  void send(const Fd& socket, std::string_view text) const {
    ASSERT_EQ(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  void step() {
    poller.poll();
    for (Accepted& one :
         acceptor.step([this](const std::string& id, size_t) { return !refused.contains(id); }))
      accepted.push_back(std::move(one));
  }
  template <typename Done>
  bool step_until(Done done, milliseconds timeout = seconds(5)) {
    const Deadline deadline = Deadline::after(timeout);
    while (!done()) {
      if (deadline.expired()) return false;
      step();
    }
    return true;
  }
  // Bytes that came back until the connection was closed; nothing if it stays open.
  std::optional<std::string> closed_after(const Fd& socket) {
    std::string text;
    bool closed = false;
    step_until([&] {
      char bytes[256];
      const ssize_t got = ::recv(socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (got > 0) text.append(bytes, static_cast<size_t>(got));
      closed = got == 0 || (got < 0 && errno != EAGAIN);
      return closed;
    });
    return closed ? std::optional(text) : std::nullopt;
  }
  bool legitimate_peer_connects(milliseconds timeout = seconds(1)) {
    const Identity peer = new_identity(kJob);
    Connector connector(peer, self, {loopback()}, poller);
    const bool welcome = step_until([&] { return connector.step(); }, timeout);
    return welcome && !accepted.empty() && accepted.back().peer_id == peer.id;
  }

  const Identity self = new_identity(kJob);
  Poller poller;
  Acceptor acceptor{self, poller};
  std::set<std::string> refused;
  std::vector<Accepted> accepted;
  uint16_t port = 0;
};

TEST_F(Door, OpensForWhoKnowsTheNonce) {
  EXPECT_TRUE(legitimate_peer_connects());
  EXPECT_EQ(accepted[0].from.find("127.0.0.1:"), 0u);
  EXPECT_FALSE(accepted[0].same_host);
}

TEST_F(Door, HandsOverTheConnectionWithNoByteTooMuchTaken) {
  const Identity peer = new_identity(kJob);
  Connector connector(peer, self, {loopback()}, poller);
  ASSERT_TRUE(step_until([&] { return connector.step() && !accepted.empty(); }));
  const Fd ours = connector.take();
  const Fd theirs = std::move(accepted[0].socket);
  send(ours, "ping");
  send(theirs, "pong");
  char bytes[8];
  pollfd wait{theirs.get(), POLLIN, 0};
  ::poll(&wait, 1, 1000);
  EXPECT_EQ(std::string(bytes, static_cast<size_t>(::recv(theirs.get(), bytes, sizeof bytes, 0))),
            "ping");
  wait.fd = ours.get();
  ::poll(&wait, 1, 1000);
  EXPECT_EQ(std::string(bytes, static_cast<size_t>(::recv(ours.get(), bytes, sizeof bytes, 0))),
            "pong");
}

TEST_F(Door, TurnsAwayWhoeverGetsAnyByteOfTheHelloWrong) {
  const std::string right = hello(new_identity(kJob), self);
  for (size_t at = 0; at < right.size(); ++at) {
    std::string wrong = right;
    wrong[at] = static_cast<char>(wrong[at] ^ 1);
    const Fd socket = stranger();
    send(socket, wrong);
    EXPECT_EQ(closed_after(socket), "") << "byte " << at;
  }
  EXPECT_TRUE(accepted.empty());
}

TEST_F(Door, TurnsAwayAHelloThatWasSaidBefore) {
  const std::string heard = hello(new_identity(kJob), self);
  const Fd first = stranger();
  send(first, heard);
  EXPECT_TRUE(step_until([&] { return acceptor.guests() == 1 && acceptor.strangers() == 0; }));
  const Fd again = stranger();
  send(again, heard);
  EXPECT_EQ(closed_after(again), "");
  EXPECT_EQ(acceptor.refusals().counts()[static_cast<size_t>(Refusal::kReplayed)], 1u);
  EXPECT_EQ(acceptor.refusals().total(), 1u);
}

TEST_F(Door, TurnsAwayAnotherJobAndLetsItsOwnIn) {
  Config config;
  config.secret = Secret::parse(std::string(32, 's'));
  const Identity as_theirs = make_identity(JobKey::of(config), self.id, self.nonce);
  const Identity stranger_there = new_identity(kJob);
  Connector theirs(stranger_there, as_theirs, {loopback()}, poller);
  EXPECT_TRUE(step_until([&] {
    EXPECT_FALSE(theirs.step());
    return theirs.hopeless();
  }));
  EXPECT_EQ(acceptor.refusals().counts()[static_cast<size_t>(Refusal::kUnproved)], 1u);
  EXPECT_TRUE(legitimate_peer_connects());
}

TEST_F(Door, CountsWhomItTurnsAwayByReason) {
  const auto count = [this](Refusal refusal) {
    return acceptor.refusals().counts()[static_cast<size_t>(refusal)];
  };
  const Fd garbage = stranger(), stale = stranger();
  send(garbage, "GET / HTTP/1.1");
  send(stale, hello(new_identity(kJob), new_identity(kJob)));
  stranger();
  EXPECT_TRUE(step_until([&] { return acceptor.refusals().total() == 3; }));
  EXPECT_EQ(count(Refusal::kNotOurs), 1u);
  EXPECT_EQ(count(Refusal::kOtherProcess), 1u);
  EXPECT_EQ(count(Refusal::kLeft), 1u);
  std::vector<Fd> flood;
  for (size_t i = 0; i < Acceptor::kMaxStrangers + 5; ++i) flood.push_back(stranger());
  EXPECT_TRUE(step_until([&] { return count(Refusal::kTooMany) == 5; }));
  EXPECT_TRUE(step_until([&] { return acceptor.strangers() == 0; }));
  EXPECT_EQ(count(Refusal::kTooSlow), Acceptor::kMaxStrangers);
}

TEST_F(Door, TurnsAwayItself) {
  const Fd socket = stranger();
  send(socket, hello(self, self));
  EXPECT_EQ(closed_after(socket), "");
}

TEST_F(Door, TurnsAwayGarbageAtTheFirstWrongByte) {
  const size_t before = open_descriptors();
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, '\0'),
        std::string("\x16\x03\x01", 3), std::string("h!"), std::string(8, '\x01'),
        std::string("hccl-like hello 99") + std::string(greeting::kHelloBytes - 18, '0')}) {
    const Fd socket = stranger();
    ::send(socket.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    EXPECT_EQ(closed_after(socket), "") << garbage.substr(0, 20);
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(acceptor.strangers(), 0u);
  EXPECT_TRUE(legitimate_peer_connects());
}

TEST_F(Door, ForgetsThoseThatComeAndGo) {
  const size_t before = open_descriptors();
  for (int i = 0; i < 100; ++i) stranger();
  step();
  EXPECT_TRUE(step_until([&] { return acceptor.strangers() == 0; }));
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(Door, ClosesOnTheSilentAndTheSlowAfterTheirTime) {
  const Fd silent = stranger(), slow = stranger();
  const std::string right = hello(new_identity(kJob), self);
  step();
  EXPECT_EQ(acceptor.strangers(), 2u);
  EXPECT_LE(acceptor.next_timer(), Deadline::after(Acceptor::kTimeout));
  size_t sent = 0;
  const auto begin = Deadline::Clock::now();
  EXPECT_TRUE(step_until([&] {
    const auto so_far = Deadline::Clock::now() - begin;
    if (so_far > milliseconds(100) * (sent + 1))
      ::send(slow.get(), &right[sent++], 1, MSG_NOSIGNAL);
    return acceptor.strangers() == 0;
  }));
  EXPECT_GE(Deadline::Clock::now() - begin, Acceptor::kTimeout - milliseconds(50));
  EXPECT_LE(Deadline::Clock::now() - begin, Acceptor::kTimeout + milliseconds(500));
  EXPECT_EQ(closed_after(silent), "");
  EXPECT_TRUE(acceptor.next_timer().is_never());
}

TEST_F(Door, StaysOpenForPeersDuringAFlood) {
  std::vector<Fd> flood;
  for (int i = 0; i < 1000; ++i) flood.push_back(stranger());
  const size_t clients = open_descriptors();
  EXPECT_TRUE(legitimate_peer_connects());
  EXPECT_LE(acceptor.strangers(), Acceptor::kMaxStrangers);
  // The accepted connection keeps a descriptor, its peer's end went with the connector.
  EXPECT_LE(open_descriptors(), clients + Acceptor::kMaxStrangers + 2);
}

TEST_F(Door, LetsManyPeersInAtOnce) {
  std::vector<Identity> peers(300);
  std::vector<std::unique_ptr<Connector>> connectors;
  for (auto& peer : peers) {
    peer = new_identity(kJob);
    connectors.push_back(
        std::make_unique<Connector>(peer, self, std::vector<Way>{loopback()}, poller));
  }
  EXPECT_TRUE(step_until([&] {
    bool all = true;
    for (auto& connector : connectors) all &= connector->step();
    return all;
  }));
  EXPECT_EQ(accepted.size(), 300u);
}

TEST_F(Door, TakesOnlyOneOfARacersConnections) {
  const Identity peer = new_identity(kJob);
  const Way same_again = way_to(*Address::parse("::1"), port);
  Connector connector(peer, self, {loopback(), same_again, loopback()}, poller);
  const auto begin = Deadline::Clock::now();
  // The door stays shut until all three are on their way.
  while (Deadline::Clock::now() - begin < milliseconds(120)) {
    poller.poll();
    EXPECT_FALSE(connector.step());
  }
  ASSERT_TRUE(step_until([&] { return connector.step(); }));
  for (int i = 0; i < 100; ++i) step();
  EXPECT_EQ(accepted.size(), 1u);
  EXPECT_EQ(accepted[0].peer_id, peer.id);
}

// It would be welcomed when it is dead, and its socket, which nobody reads, keeps the poller awake
// until then.
TEST_F(Door, LetsGoOfAPeerThatLeavesWhileItIsHeld) {
  const auto always = [](const std::string&, size_t) { return true; };
  std::optional<Connector> connector;
  const Identity peer = new_identity(kJob);
  connector.emplace(peer, self, std::vector{loopback()}, poller);
  const Deadline deadline = Deadline::after(seconds(5));
  const auto turn = [&] {
    poller.poll();
    EXPECT_TRUE(acceptor.step(always, always).empty());
    return !deadline.expired();
  };
  while (turn() && !connector->is_committed()) connector->step();
  for (int i = 0; i < 100; ++i) turn();
  EXPECT_EQ(acceptor.guests(), 1u) << "it is at the door";
  connector.reset();
  while (turn() && acceptor.guests() > 0) {
  }
  EXPECT_EQ(acceptor.guests(), 0u);
  EXPECT_FALSE(poller.poll());
  EXPECT_EQ(acceptor.refusals().total(), 0u) << "it was no stranger";
}

TEST_F(Door, ClosesOnAPeerThatIsNotWanted) {
  const Identity peer = new_identity(kJob);
  refused.insert(peer.id);
  Connector connector(peer, self, {loopback()}, poller);
  EXPECT_FALSE(step_until([&] { return connector.step(); }, milliseconds(100)));
  EXPECT_TRUE(accepted.empty());
  EXPECT_NE(connector.report().find("127.0.0.1:" + std::to_string(port) + ": "), std::string::npos);
  refused.clear();
  EXPECT_TRUE(step_until([&] { return connector.step(); })) << "it tries again, and is welcome now";
}

TEST_F(Door, OpensOverTheUnixSocketForTheSameUser) {
  Listener listener = Listener::unix_abstract();
  const Way way = way_to_unix(listener.name());
  acceptor.listeners().add(std::move(listener));
  const Identity peer = new_identity(kJob);
  Connector connector(peer, self, {way}, poller);
  ASSERT_TRUE(step_until([&] { return connector.step() && !accepted.empty(); }));
  EXPECT_TRUE(accepted[0].same_host);
  EXPECT_EQ(connector.taken(), "shm");
}

TEST_F(Door, CostsNoSystemCallWhenNobodyKnocks) {
  step();
  // Without a report from the poller nothing is looked at, even if somebody is there.
  const Fd socket = stranger();
  for (int i = 0; i < 10; ++i)
    EXPECT_TRUE(acceptor.step([](const std::string&, size_t) { return true; }).empty());
  EXPECT_EQ(acceptor.strangers(), 0u);
  step();
  EXPECT_EQ(acceptor.strangers(), 1u);
}

// A connector's view of somebody who is not the peer that the store promised.
class Impostor : public Door {
 protected:
  const Identity promised = new_identity(kJob);
};

TEST_F(Impostor, IsFoundOutByTheConnector) {
  // Our acceptor answers for `self`; the connector wants `promised`, whose old address this is.
  const Identity connecting = new_identity(kJob);
  Connector connector(connecting, promised, {loopback()}, poller);
  EXPECT_TRUE(step_until([&] {
    EXPECT_FALSE(connector.step());
    return connector.hopeless();
  }));
  EXPECT_NE(connector.report().find("closed by the other end"), std::string::npos)
      << connector.report();
  EXPECT_TRUE(accepted.empty());
}

TEST_F(Impostor, ThatEchoesTheHelloIsFoundOut) {
  Listener listener = Listener::tcp(kLoopback, {});
  const Identity connecting = new_identity(kJob);
  Connector connector(connecting, promised, {way_to(kLoopback, listener.port())}, poller);
  Fd socket;
  std::string heard;
  EXPECT_TRUE(step_until([&] {
    connector.step();
    if (!socket.valid()) socket = listener.accept().socket;
    char bytes[256];
    const ssize_t got =
        socket.valid() ? ::recv(socket.get(), bytes, sizeof bytes, MSG_DONTWAIT) : 0;
    if (got > 0) {
      heard.append(bytes, static_cast<size_t>(got));
      ::send(socket.get(), bytes, static_cast<size_t>(got), MSG_NOSIGNAL);
    }
    return connector.hopeless();
  }));
  EXPECT_NE(connector.report().find("another process answers there"), std::string::npos)
      << connector.report();
  EXPECT_EQ(heard.size(), greeting::kHelloBytes) << "and learnt no more than the hello";
}

TEST_F(Door, ConnectorGoesAroundAnAddressThatNeverAnswers) {
  // Listens, but never takes a connection: as an address that another machine owns.
  const Listener dead = Listener::tcp(kLoopback, {});
  const Identity peer = new_identity(kJob);
  Connector connector(peer, self, {way_to(kLoopback, dead.port()), loopback()}, poller);
  const auto begin = Deadline::Clock::now();
  ASSERT_TRUE(step_until([&] { return connector.step(); }));
  EXPECT_LT(Deadline::Clock::now() - begin, milliseconds(500));
  EXPECT_EQ(connector.taken(), "127.0.0.1:" + std::to_string(port));
}

}  // namespace
}  // namespace hccl_like
