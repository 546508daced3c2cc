#include "transport/bootstrap/rails.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;

// From the last sign of life until a peer that no new connection reaches counts as lost.
constexpr milliseconds kLongestOutage{5'500};
// A rail that was moved to another network tries its own again after a pause that doubles.
constexpr milliseconds kFirstTryHome{5'000}, kLastTryHome{60'000}, kTryHome{2'000};
constexpr milliseconds kStale{200};
constexpr milliseconds kTell{500};
constexpr milliseconds kRedial{1'000};
constexpr milliseconds kLook{50};
// A rail stays where its first connection is made. On a busy host its own network may answer late;
// the value is RFC 8305's (section 5).
constexpr milliseconds kHeadStart{250};

// The local interface that reaches an address or, behind a router, the address itself.
std::string network_of(const Address& address, const std::vector<InterfaceAddress>& own) {
  for (const auto& one : own)
    if (one.prefix != 0 && one.address.same_subnet(address, one.prefix)) return one.interface;
  return address.to_string();
}

// The address in a route: "10.0.0.5:4000", "from [fd00::5]:51234".
std::string_view peer_address(std::string_view route) {
  if (route.starts_with("from ")) route.remove_prefix(5);
  return route.substr(0, route.rfind(':'));
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

Rails::Rails(RailedWire& wire, WireSide side, const Identity& self, Peer peer,
             const TcpOptions& tcp, Poller& poller, std::string first, std::string via)
    : wire_(wire),
      life_(wire.life()),
      side_(side),
      self_(self),
      peer_(std::move(peer)),
      tcp_(tcp),
      poller_(poller),
      replacements_(wire.rails()),
      routes_(wire.rails()),
      via_(std::move(via)) {
  routes_[0] = std::move(first);
  homes_ = routes_;
}

void Rails::step(std::chrono::milliseconds timeout, const std::string& advice) {
  if (makes() && !wire_.over()) make_missing(timeout, advice);
  for (size_t rail = 0; rail < wire_.rails() && !wire_.over(); ++rail) {
    const TcpWire* const one = wire_.rail(rail);
    if (one == nullptr || !one->replaceable()) continue;
    if (one->broken())
      replace(rail, advice);
    else if (one->resuming())
      replacements_[rail].connector.reset();
    else if (replacements_[rail].begun)
      finish(rail);
    else if (is_away(rail))
      go_home(rail);
  }
  if (!wire_.over()) return;
  connectors_.clear();
  for (Replacement& one : replacements_) one.connector.reset();
}

void Rails::make_missing(std::chrono::milliseconds timeout, const std::string& advice) {
  if (connectors_.empty()) {
    if (!wire_.wants_rails()) return;
    deadline_ = Deadline::after(timeout);
    connectors_.resize(wire_.rails());
    for (size_t rail = 1; rail < wire_.rails(); ++rail)
      connectors_[rail] = std::make_unique<Connector>(self_, peer_.identity, peer_.ways[rail],
                                                      poller_, rail, kHeadStart);
  }
  std::string missing;
  for (size_t rail = 1; rail < connectors_.size(); ++rail) {
    auto& connector = connectors_[rail];
    if (!connector) continue;
    if (connector->step()) {
      homes_[rail] = routes_[rail] = connector->taken();
      wire_.attach(rail,
                   std::make_unique<TcpWire>(connector->take(), poller_, tcp_, routes_[rail]));
      connector.reset();
    } else {
      missing += "; rail " + std::to_string(rail) + ": " + connector->report();
    }
  }
  if (missing.empty()) {
    deadline_ = Deadline::never();
    if (!wire_.misses_any()) connectors_.clear();
  } else if (deadline_.expired()) {
    wire_.give_up(
        {ErrorCode::kTimeout,
         "timed out connecting to it over all of its HCCL_LIKE_TCP_RAILS" + missing + advice});
  }
}

std::string Rails::title(size_t rail, const std::string& route) const {
  return "the tcp connection to " + peer_.name + ", " + route +
         (wire_.rails() > 1 ? " (rail " + std::to_string(rail) + ")" : "") + ",";
}

void Rails::replace(size_t rail, const std::string& advice) {
  Replacement& now = replacements_[rail];
  const auto time = Deadline::Clock::now();
  if (std::exchange(now.tries_home, false)) now.connector.reset();
  if (!now.begun) {
    now.begun = true;
    now.told = false;
    now.since = time;
    now.answered = {};
    now.cause = wire_.rail(rail)->cause();
    now.from = routes_[rail];
  }
  // The connection of a process that has ended may break, too: its host says so at once.
  if (time - now.since > kTell && !std::exchange(now.told, true))
    log_warn(title(rail, now.from) + " broke: " + now.cause + "; connecting again");
  // A connection request that was lost is repeated after a second, and then after two more.
  if (now.connector && !now.connector->is_answered() && time - now.dialed > kRedial)
    now.connector.reset();
  if (!now.connector) {
    now.dialed = time;
    now.connector = std::make_unique<Connector>(self_, peer_.identity, peer_.ways[rail], poller_,
                                                (makes() ? kReplacesRail : kAsksForRail) + rail);
  }
  if (now.connector->step()) return take(rail);
  if (now.connector->is_answered()) now.answered = time;
  const std::string before =
      "the tcp connection to " + routes_[rail] + " is gone: " + wire_.rail(rail)->cause();
  if (now.connector->nobody_listens() || now.connector->is_refused_by(peer_address(routes_[rail])))
    return wire_.give_up(
        {ErrorCode::kPeerLost, before + ", and its process has ended: " + now.connector->report()});
  if (time - std::max(wire_.rail(rail)->heard(), now.answered) > kLongestOutage)
    wire_.give_up({ErrorCode::kPeerLost, before + ", and no other came about within " +
                                             std::to_string(kLongestOutage.count()) +
                                             " ms: " + now.connector->report() + advice});
}

// The connection that the connector has made.
void Rails::take(size_t rail) {
  Connector& connector = *replacements_[rail].connector;
  routes_[rail] = connector.taken();
  wire_.rail(rail)->resume(connector.take(), WireSide::kConnector, routes_[rail]);
  replacements_[rail].connector.reset();
}

void Rails::finish(size_t rail) {
  Replacement& now = replacements_[rail];
  const auto time = Deadline::Clock::now();
  const auto took = std::chrono::duration_cast<milliseconds>(time - now.since).count();
  log_warn(title(rail, now.from) + " was replaced after " + std::to_string(took) + " ms by " +
           (makes() ? "" : "one ") + routes_[rail] + ": " + now.cause);
  now.begun = false;
  now.connector.reset();
  now.done = time;
  now.pause = std::clamp(2 * now.pause, kFirstTryHome, kLastTryHome);
  now.next_try = is_away(rail) ? Deadline::after(now.pause) : Deadline::never();
}

// Tries the first route of a rail that was moved to another one.
void Rails::go_home(size_t rail) {
  Replacement& now = replacements_[rail];
  if (!now.next_try.expired()) return;
  if (!now.connector) {
    const auto way = std::ranges::find(peer_.ways[rail], homes_[rail], &Way::label);
    if (way == peer_.ways[rail].end()) return;
    now.tries_home = true;
    now.since = Deadline::Clock::now();
    now.connector = std::make_unique<Connector>(self_, peer_.identity, std::vector<Way>{*way},
                                                poller_, kReplacesRail + rail);
  }
  if (now.connector->step()) {
    now.tries_home = false;
    now.begun = true;
    now.cause = "its own network works again";
    now.from = routes_[rail];
    return take(rail);
  }
  if (Deadline::Clock::now() - now.since < kTryHome) return;
  now.connector.reset();
  now.tries_home = false;
  now.pause = std::min(2 * now.pause, kLastTryHome);
  now.next_try = Deadline::after(now.pause);
}

bool Rails::settled() const {
  if (wire_.over()) return true;
  return !wire_.misses_any() && down() == 0;
}

bool Rails::is_down(size_t rail) const {
  const TcpWire* const one = wire_.rail(rail);
  if (one == nullptr) return false;
  return one->broken() || one->resuming() || replacements_[rail].begun || is_away(rail);
}

size_t Rails::down() const {
  size_t count = 0;
  for (size_t rail = 0; rail < wire_.rails(); ++rail) count += is_down(rail) ? 1 : 0;
  return count;
}

bool Rails::is_restless() const {
  if (gone() || wire_.over()) return false;
  if (makes() && (!connectors_.empty() || wire_.wants_rails())) return true;
  for (size_t rail = 0; rail < wire_.rails(); ++rail)
    if (const TcpWire* one = wire_.rail(rail); one != nullptr && (one->broken() || one->resuming()))
      return true;
  return false;
}

Deadline Rails::next_timer() const {
  Deadline next = deadline_;
  for (const auto& connector : connectors_)
    if (connector) next = earliest(next, connector->next_timer());
  for (const Replacement& one : replacements_) {
    if (one.connector)
      next = earliest(next, earliest(one.connector->next_timer(), Deadline::after(kLook)));
    else
      next = earliest(next, one.next_try);
  }
  return next;
}

bool Rails::expects(size_t index) const {
  if (makes() || wire_.over()) return false;
  if (index < kReplacesRail) return wire_.misses(index);
  const size_t rail = index - kReplacesRail;
  return rail < wire_.rails() && wire_.rail(rail) != nullptr && wire_.rail(rail)->replaceable();
}

void Rails::take_in(size_t index, Fd socket, std::string from) {
  const size_t rail = index % kReplacesRail;
  routes_[rail] = from;
  if (index < kReplacesRail)
    return wire_.attach(rail, std::make_unique<TcpWire>(std::move(socket), poller_, tcp_, from));
  replacements_[rail].connector.reset();
  wire_.rail(rail)->resume(std::move(socket), WireSide::kAcceptor, std::move(from));
}

void Rails::abandon() {
  const TcpWire& first = *wire_.rail(0);
  if (makes() || (!first.broken() && !first.resuming())) return;
  wire_.give_up({ErrorCode::kPeerLost,
                 "the tcp connection to " + routes_[0] + " is gone: the peer has given it up"});
}

void Rails::asked_for(size_t rail) {
  if (!makes() || rail >= wire_.rails() || wire_.rail(rail) == nullptr) return;
  TcpWire& one = *wire_.rail(rail);
  // A request may arrive after its answer.
  const bool fresh = Deadline::Clock::now() - replacements_[rail].done < kStale;
  if (one.replaceable() && !one.broken() && !one.resuming() && !fresh)
    one.stop("the peer has lost it");
}

uint64_t Rails::replaced() const {
  uint64_t sum = 0;
  for (size_t rail = 0; rail < wire_.rails(); ++rail)
    if (const TcpWire* const one = wire_.rail(rail)) sum += one->resumed();
  return sum;
}

std::string Rails::route() const {
  std::string text;
  for (const std::string& one : routes_) {
    if (!one.empty()) text += (text.empty() ? "" : " + ") + one;
    if (&one == &routes_[0] && one == homes_[0] && !via_.empty()) text += " " + via_;
  }
  return text;
}

}  // namespace hccl_like
