#pragma once
// Makes the further rails of a wire once its first rail has carried enough, at the connector's end.
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

// The order in which one rail tries a peer's addresses: first those of the rail's own network, then
// all others. Rails alternate over the networks that the two hosts share. `ordered`: the order of
// order_for_connecting(), which rail 0 keeps.
std::vector<Address> order_for_rail(const std::vector<Address>& ordered,
                                    const std::vector<InterfaceAddress>& own, size_t rail);

// Used by one thread at a time; nothing blocks.
class RailDialer {
 public:
  // `ways` by rail; `ways[0]` is unused. Identity, poller and wire must outlive this object.
  RailDialer(RailedWire& wire, const Identity& self, Identity target,
             std::vector<std::vector<Way>> ways, const TcpOptions& tcp, Poller& poller);

  bool is_restless() const { return !connectors_.empty() || wire_.wants_rails(); }
  // Makes progress; true once all rails are attached or the wire has failed. Rails still missing
  // `timeout` after they were wanted end the wire with an error that ends with `advice`.
  bool step(std::chrono::milliseconds timeout, const std::string& advice);
  // The routes of the attached rails, e.g. "10.0.1.5:4000".
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
  std::vector<std::unique_ptr<Connector>> connectors_;  // by rail; null: attached
  std::vector<std::string> routes_;
};

}  // namespace hccl_like
