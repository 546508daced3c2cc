#include "transport/bootstrap/connector.h"

#include <gtest/gtest.h>

#include "transport/bootstrap/acceptor.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const JobKey kConnectorJob;
const Address kHere = *Address::parse("127.0.0.1");

const auto accepts_all = [](const std::string&, size_t) { return true; };

TEST(Connector, PrefersTheFirstAddressThatAnswersWithinItsHeadStart) {
  for (const auto& [stagger, first_wins] :
       {std::pair{milliseconds(25), false}, std::pair{milliseconds(10'000), true}}) {
    const Identity self = new_identity(kConnectorJob), peer = new_identity(kConnectorJob);
    Poller poller;
    Acceptor busy(self, poller), idle(self, poller);
    std::vector<Way> ways;
    for (Acceptor* one : {&busy, &idle})
      ways.push_back(way_to(kHere, one->listeners().add(Listener::tcp(kHere, {})).port()));
    Connector connector(peer, self, ways, poller, /*rail=*/1, stagger);
    const Deadline late = Deadline::after(milliseconds(100)),
                   deadline = Deadline::after(seconds(5));
    while (!connector.step()) {
      ASSERT_FALSE(deadline.expired());
      poller.poll();
      idle.step(accepts_all);
      if (late.expired()) busy.step(accepts_all);
    }
    EXPECT_EQ(connector.taken() == ways.front().label, first_wins);
  }
}

TEST(Connector, WaitsForAPeerThatComesLate) {
  const uint16_t port = Listener::tcp(kHere, {}).port();
  const Identity self = new_identity(kConnectorJob), peer = new_identity(kConnectorJob);
  Poller poller;
  Connector connector(peer, self, {way_to(kHere, port)}, poller);
  const Deadline first = Deadline::after(milliseconds(30));
  while (!first.expired() || !connector.hopeless()) {
    poller.poll();
    ASSERT_FALSE(connector.step());
  }
  EXPECT_NE(connector.report().find("Connection refused"), std::string::npos) << connector.report();
  Acceptor acceptor(self, poller);
  acceptor.listeners().add(Listener::tcp(kHere, {port, port}));
  const Deadline deadline = Deadline::after(seconds(5));
  while (!connector.step()) {
    ASSERT_FALSE(deadline.expired());
    poller.poll();
    acceptor.step(accepts_all);
  }
}

}  // namespace
}  // namespace hccl_like
