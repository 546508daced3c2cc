#include "transport/bootstrap/dialer.h"

#include <gtest/gtest.h>

#include "transport/bootstrap/acceptor.h"

namespace hccl_like {
namespace {

using std::chrono::seconds;

// A process that listens at loopback, and what another knows of it.
struct Peer {
  Peer() : acceptor(identity, poller) {
    const Address loopback = *Address::parse("127.0.0.1");
    record.id = identity.id;
    record.nonce = identity.nonce;
    record.host = "this";
    record.port = acceptor.listeners().add(Listener::tcp(loopback, {})).port();
    record.addresses = {loopback.to_string()};
  }
  void step() {
    poller.poll();
    acceptor.step([](const std::string&, size_t) { return true; });
  }
  const Identity identity = new_identity(JobKey());
  Poller poller;
  Acceptor acceptor;
  ProcessRecord record;
};

struct Caller {
  Caller() {
    local.identity = new_identity(JobKey());
    local.transports = {"tcp"};
    self.host = "this";
    self.port = 1;
  }
  // The next wire, null if none comes.
  std::unique_ptr<Wire> dial(Dialer& dialer, Peer& peer) {
    const Deadline deadline = Deadline::after(seconds(60));
    while (!deadline.expired()) {
      poller.poll();
      if (dialer.step()) return dialer.take().wire;
      peer.step();
    }
    return nullptr;
  }
  LocalEnd local;
  ProcessRecord self;
  Poller poller;
};

// Somebody who lost what he was given, to an exception or to a peer that went away, asks again.
TEST(Dialer, BeginsAnewAfterItsWireWasTaken) {
  Peer peer;
  Caller caller;
  Dialer dialer(caller.local, caller.self, peer.record, caller.poller);
  auto first = caller.dial(dialer, peer);
  ASSERT_NE(first, nullptr);
  first.reset();
  const auto second = caller.dial(dialer, peer);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->failure(), nullptr);
}

}  // namespace
}  // namespace hccl_like
