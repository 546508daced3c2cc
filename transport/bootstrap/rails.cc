#include "transport/bootstrap/rails.h"

#include <algorithm>
#include <utility>

namespace hccl_like {
namespace {

// The local interface that reaches an address or, behind a router, the address itself.
std::string network_of(const Address& address, const std::vector<InterfaceAddress>& own) {
  for (const auto& one : own)
    if (one.prefix != 0 && one.address.same_subnet(address, one.prefix)) return one.interface;
  return address.to_string();
}

}  // namespace

std::vector<Address> order_for_rail(const std::vector<Address>& ordered,
                                    const std::vector<InterfaceAddress>& own, size_t rail) {
  std::vector<std::string> networks;
  for (const Address& address : ordered)
    if (const auto network = network_of(address, own);
        std::ranges::find(networks, network) == networks.end())
      networks.push_back(network);
  if (networks.empty()) return ordered;
  const std::string& mine = networks[rail % networks.size()];
  std::vector<Address> turned = ordered;
  std::stable_partition(turned.begin(), turned.end(),
                        [&](const Address& one) { return network_of(one, own) == mine; });
  return turned;
}

RailDialer::RailDialer(RailedWire& wire, const Identity& self, Identity target,
                       std::vector<std::vector<Way>> ways, const TcpOptions& tcp, Poller& poller)
    : wire_(wire),
      self_(self),
      target_(std::move(target)),
      ways_(std::move(ways)),
      tcp_(tcp),
      poller_(poller) {}

bool RailDialer::step(std::chrono::milliseconds timeout, const std::string& advice) {
  if (wire_.failure() != nullptr) return true;
  if (connectors_.empty()) {
    if (!wire_.wants_rails()) return false;
    deadline_ = Deadline::after(timeout);
    connectors_.resize(ways_.size());
    for (size_t rail = 1; rail < ways_.size(); ++rail)
      connectors_[rail] = std::make_unique<Connector>(self_, target_, ways_[rail], poller_, rail);
  }
  std::string missing;
  for (size_t rail = 1; rail < connectors_.size(); ++rail) {
    auto& connector = connectors_[rail];
    if (!connector) continue;
    if (connector->step()) {
      routes_.push_back(connector->taken());
      wire_.attach(rail,
                   std::make_unique<TcpWire>(connector->take(), poller_, tcp_, routes_.back()));
      connector.reset();
    } else {
      missing += "; rail " + std::to_string(rail) + ": " + connector->report();
    }
  }
  if (missing.empty()) return true;
  if (!deadline_.expired()) return false;
  wire_.give_up(
      {ErrorCode::kTimeout,
       "timed out connecting to it over all of its HCCL_LIKE_TCP_RAILS" + missing + advice});
  return true;
}

Deadline RailDialer::next_timer() const {
  Deadline next = deadline_;
  for (const auto& connector : connectors_)
    if (connector) next = earliest(next, connector->next_timer());
  return next;
}

}  // namespace hccl_like
