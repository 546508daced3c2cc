#pragma once
// Makes the further rails of a wire, once enough has passed over its first: the connector's part.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/base/deadline.h"
#include "transport/bootstrap/connector.h"
#include "transport/security/identity.h"
#include "transport/tcp/railed_wire.h"
#include "transport/wire/poller.h"

namespace hccl_like {

// The order in which the addresses of a peer are tried for one rail: those of the rail's own
// network first, so that rails take turns with the networks that the two hosts have in common; the
// others after them, so that a rail is made if there is any way at all. `ordered`: as
// order_for_connecting() has it. Rail 0 has it unchanged.
std::vector<Address> order_for_rail(const std::vector<Address>& ordered,
                                    const std::vector<InterfaceAddress>& own, size_t rail);

// Used by one thread at a time; nothing blocks.
class RailDialer {
 public:
  // `ways[rail]`: how to reach the peer; those of rail 0 are not used. Identity, poller and wire
  // must outlive it.
  RailDialer(RailedWire& wire, const Identity& self, Identity target,
             std::vector<std::vector<Way>> ways, const TcpOptions& tcp, Poller& poller);

  // Whether step() has something to do: rails are wanted, or under way.
  bool is_restless() const { return !connectors_.empty() || wire_.wants_rails(); }
  // Goes on; true once all rails are there, or the wire has failed. Rails that are not there
  // `backoff` after they were wanted end the wire with an error that ends with `advice`.
  bool step(std::chrono::milliseconds backoff, const std::string& advice);
  // "10.0.1.5:4000": how the rails that are there got there.
  const std::vector<std::string>& routes() const { return routes_; }
  Deadline next_timer() const;

 private:
  RailedWire& wire_;
  const Identity& self_;
  const Identity target_;
  const std::vector<std::vector<Way>> ways_;
  const TcpOptions tcp_;
  Poller& poller_;
  Deadline deadline_ = Deadline::never();
  std::vector<std::unique_ptr<Connector>> connectors_;  // by rail; null: it is there
  std::vector<std::string> routes_;
};

}  // namespace hccl_like
