#pragma once
// Makes the connections of a tcp wire after the first: further rails once that has carried enough,
// and new ones in the place of broken ones.
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/base/deadline.h"
#include "core/base/fd.h"
#include "transport/bootstrap/connector.h"
#include "transport/security/identity.h"
#include "transport/tcp/railed_wire.h"
#include "transport/wire/poller.h"
#include "transport/wire/transport.h"

namespace hccl_like {

// Connection indices of a greeting: rails from 0, a new connection for rail r at kReplacesRail + r,
// and at kAsksForRail + r the acceptor's request for one.
inline constexpr size_t kReplacesRail = 32, kAsksForRail = 64;

// The order in which one rail tries a peer's addresses: first those of the rail's own network, then
// all others. Rails alternate over the networks that the two hosts share. `ordered`: the order of
// order_for_connecting(), which rail 0 keeps.
std::vector<Address> order_for_rail(const std::vector<Address>& ordered,
                                    const std::vector<InterfaceAddress>& own, size_t rail);

// One end's part. The connector of the first connection makes all of them. The acceptor of the
// first connection asks for a new one when it finds a connection broken: the connector may not have
// noticed. Either end learns by a refusal that the peer's process has ended. Used by one thread at
// a time; nothing blocks.
class Rails {
 public:
  struct Peer {
    std::string name;  // for logs: "rank 3 (hostb:712)"
    Identity identity;
    std::vector<std::vector<Way>> ways;  // by rail
  };
  // `first`: the address of the first connection, at the acceptor's end "from 10.0.0.5:51234".
  // `via`: its interface, "via eth0", or empty. Identity and poller must outlive this object. Of
  // what follows, only gone() and is_restless() may be called once the wire is gone.
  Rails(RailedWire& wire, WireSide side, const Identity& self, Peer peer, const TcpOptions& tcp,
        Poller& poller, std::string first, std::string via);

  // Whether the wire has been destroyed: its owner does so at an error of its own.
  bool gone() const { return life_.expired(); }
  // Makes progress. Rails still missing `timeout` after they were wanted end the wire with an error
  // that ends with `advice`. So does a broken connection without a new one.
  void step(std::chrono::milliseconds timeout, const std::string& advice);
  // Whether step() has nothing to do until a connection breaks.
  bool settled() const;
  // Rails that are broken or, at the connector's end, go over another network than at first.
  size_t down() const;
  // Whether step() should be called often.
  bool is_restless() const;
  Deadline next_timer() const;

  // At the acceptor's end: whether a connection of this index is expected.
  bool expects(size_t index) const;
  void take_in(size_t index, Fd socket, std::string from);
  // The connector comes with a first connection: it has no wire. Ends this one if that is broken.
  void abandon();
  // At the connector's end: the peer asks for a new connection.
  void asked_for(size_t rail);

  // Connections that took the place of others.
  uint64_t replaced() const;
  // The routes of the rails there are: "10.0.0.5:4000 via eth0 + 10.0.1.5:4000".
  std::string route() const;

 private:
  // A rail whose connection broke, or was moved to another network.
  struct Replacement {
    std::unique_ptr<Connector> connector{};
    bool begun = false, told = false;  // told: it has been logged
    std::string cause{}, from{};       // why it broke, and its route then
    bool tries_home = false;
    Deadline::Clock::time_point since{}, dialed{}, answered{}, done{};
    Deadline next_try = Deadline::never();  // over the first route
    std::chrono::milliseconds pause{0};
  };
  bool makes() const { return side_ == WireSide::kConnector; }
  void make_missing(std::chrono::milliseconds timeout, const std::string& advice);
  void replace(size_t rail, const std::string& advice);
  void go_home(size_t rail);
  void take(size_t rail);
  void finish(size_t rail);
  bool is_down(size_t rail) const;
  bool is_away(size_t rail) const { return makes() && routes_[rail] != homes_[rail]; }
  std::string title(size_t rail, const std::string& route) const;

  RailedWire& wire_;
  const std::weak_ptr<const void> life_;  // of wire_
  const WireSide side_;
  const Identity& self_;
  const Peer peer_;
  const TcpOptions tcp_;
  Poller& poller_;
  Deadline deadline_ = Deadline::never();               // of the missing rails
  std::vector<std::unique_ptr<Connector>> connectors_;  // of the missing rails
  std::vector<Replacement> replacements_;
  std::vector<std::string> routes_, homes_;  // now, and at first
  const std::string via_;
};

}  // namespace hccl_like
