#include "transport/bootstrap/dialer.h"

#include <sys/socket.h>

#include <algorithm>

#include "transport/security/sealed_wire.h"

namespace hccl_like {
namespace {

constexpr std::chrono::milliseconds kPauseBetweenRounds{200};
// Timeout of a transport that reports no failure while another transport is left.
constexpr std::chrono::milliseconds kTimeoutWithOthers{5'000};
// A loadable transport may be unable to wake a sleeper.
constexpr std::chrono::milliseconds kLookAgain{1};

}  // namespace

Transport* LocalEnd::find(std::string_view name) const {
  for (const auto& one : others)
    if (one->name() == name) return one.get();
  return nullptr;
}

Identity LocalEnd::identity_of(const ProcessRecord& peer) const {
  return make_identity(job, peer.id, peer.nonce, sealed);
}

TcpOptions LocalEnd::tcp_to(const ProcessRecord& self, const ProcessRecord& peer) const {
  TcpOptions options = tcp;
  if (self.host == peer.host) options.broke.reset();
  return options;
}

std::unique_ptr<Wire> LocalEnd::tcp_wire(Fd socket, Poller& poller, const TcpOptions& options,
                                         const std::string& peer, const Key& session, WireSide side,
                                         RailedWire** railed) const {
  auto first = std::make_unique<TcpWire>(std::move(socket), poller, options, peer);
  auto wire = std::make_unique<RailedWire>(std::move(first), tcp_rails);
  *railed = wire.get();
  return sealed_wire(std::move(wire), session, side, peer);
}

std::vector<Way> LocalEnd::tcp_ways(const ProcessRecord& self, const ProcessRecord& peer,
                                    uint16_t port, size_t rail) const {
  std::vector<Way> ways;
  const auto ordered = order_for_connecting(peer.addresses, addresses, self.host == peer.host);
  for (const Address& address : order_for_rail(ordered, addresses, rail)) {
    ways.push_back(way_to(address, port));
    ways.back().prepare = [this](int socket) { tcp.congestion.prepare(socket); };
  }
  return ways;
}

std::unique_ptr<LifelineDialer> LocalEnd::lifeline_to(const ProcessRecord& self,
                                                      const ProcessRecord& peer,
                                                      Poller& poller) const {
  return std::make_unique<LifelineDialer>(identity, identity_of(peer),
                                          tcp_ways(self, peer, lifeline_port(peer), 0), poller);
}

std::unique_ptr<Wire> LocalEnd::sealed_wire(std::unique_ptr<Wire> wire, const Key& session,
                                            WireSide side, const std::string& peer) const {
  if (!sealed) return wire;
  return std::make_unique<SealedWire>(std::move(wire), session, side, peer);
}

std::unique_ptr<Wire> LocalEnd::other_wire(std::unique_ptr<Wire> wire, Poller& poller,
                                           const Key& session, WireSide side,
                                           const ProcessRecord& self, const ProcessRecord& peer,
                                           WatchedWire** watched) const {
  *watched = nullptr;
  if (lifeline_port(self) != 0 && lifeline_port(peer) != 0) {
    auto with = std::make_unique<WatchedWire>(std::move(wire), poller, peer.hostname, tcp.broke);
    *watched = with.get();
    wire = std::move(with);
  }
  return sealed_wire(std::move(wire), session, side, peer.hostname);
}

FarEnd far_end(const std::string& transport, const ProcessRecord& self, const ProcessRecord& peer) {
  const auto found = peer.ends.find(transport);
  return {.id = peer.id,
          .hostname = peer.hostname,
          .same_host = self.host == peer.host,
          .address = found == peer.ends.end() ? "" : found->second};
}

std::vector<std::string> common_transports(const LocalEnd& local, const ProcessRecord& self,
                                           const ProcessRecord& peer) {
  std::vector<std::string> common;
  for (const auto& transport : local.transports) {
    const bool shm = transport == "shm" && self.host == peer.host && !self.unix_name.empty() &&
                     !peer.unix_name.empty();
    const bool tcp = transport == "tcp" && self.port != 0 && peer.port != 0;
    const Transport* const other = peer.ends.contains(transport) ? local.find(transport) : nullptr;
    const bool reaches = other != nullptr && other->can_reach(far_end(transport, self, peer));
    if (shm || tcp || reaches) common.push_back(transport);
  }
  return common;
}

std::string leaves_via(int socket, const std::vector<InterfaceAddress>& own) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return "";
  const auto address = Address::of(reinterpret_cast<const sockaddr*>(&storage));
  const std::string interface = address ? interface_of(*address, own) : "";
  return interface.empty() ? "" : "via " + interface;
}

Dialer::Dialer(const LocalEnd& local, const ProcessRecord& self, const ProcessRecord& peer,
               Poller& poller)
    : local_(local),
      self_(self),
      peer_(peer),
      target_(local.identity_of(peer)),
      same_host_(self.host == peer.host),
      poller_(poller),
      stages_(common_transports(local, self, peer)),
      setbacks_(stages_.size()) {
  begin_stage();
}

void Dialer::begin_stage() {
  connector_.reset();
  other_.reset();
  if (Transport* const other = local_.find(stages_[stage_])) {
    other_backoff_ = stages_.size() > 1 ? Deadline::after(kTimeoutWithOthers) : Deadline::never();
    try {
      auto wire = other->connect(far_end(stages_[stage_], self_, peer_), WireSide::kConnector);
      other_ = std::make_unique<WireGreeting>(std::move(wire), WireSide::kConnector,
                                              local_.identity, target_);
    } catch (const Exception& exception) {
      setbacks_[stage_] = stages_[stage_] + ": " + exception.error().message;
    }
    return;
  }
  std::vector<Way> ways = stages_[stage_] == "shm" ? std::vector<Way>{way_to_unix(peer_.unix_name)}
                                                   : local_.tcp_ways(self_, peer_, peer_.port, 0);
  connector_ = std::make_unique<Connector>(local_.identity, target_, std::move(ways), poller_);
}

bool Dialer::step() {
  if (Deadline::Clock::now() < resume_at_) return false;
  if (shm_) return step_shm();
  if (!connector_) return step_other();
  if (connector_->step()) return on_connected();
  // The last transport is retried until the deadline, the others only while they can work.
  if (stage_ + 1 < stages_.size() && connector_->hopeless()) next_stage(connector_->report());
  return false;
}

bool Dialer::on_connected() {
  const Key session = connector_->session();
  const std::string taken = connector_->taken();
  Fd socket = connector_->take();
  // The connector is used up; if the socket fails, the next step makes a new one.
  connector_.reset();
  if (stages_[stage_] == "shm") {
    shm_ = std::make_unique<ShmHandshake>(std::move(socket), ShmHandshake::Side::kConnector,
                                          local_.shm_ring_bytes, poller_, local_.commons.get());
    return step_shm();
  }
  dialed_.address = taken;
  dialed_.via = leaves_via(socket.get(), local_.addresses);
  dialed_.route = local_.tcp_name() + " " + taken + (dialed_.via.empty() ? "" : " " + dialed_.via);
  dialed_.reason = reason();
  dialed_.wire = local_.tcp_wire(std::move(socket), poller_, local_.tcp_to(self_, peer_), taken,
                                 session, WireSide::kConnector, &dialed_.railed);
  return true;
}

bool Dialer::step_shm() {
  if (!shm_->step()) return false;
  dialed_.wire = shm_->take();
  if (!dialed_.wire) {
    const std::string cause = shm_->cause();
    shm_.reset();
    next_stage("shm: " + cause);
    return false;
  }
  dialed_.route = "shm";
  dialed_.reason = reason();
  return true;
}

bool Dialer::step_other() {
  const std::string& name = stages_[stage_];
  const auto state = other_ ? other_->step() : WireGreeting::State::kFailed;
  if (state == WireGreeting::State::kUnderWay && !other_backoff_.expired()) return false;
  if (state != WireGreeting::State::kDone) {
    next_stage(other_ ? name + ": " + other_->cause() : setbacks_[stage_]);
    return false;
  }
  const std::string route = local_.find(name)->route(other_->wire());
  dialed_.route = route.empty() ? name : name + " " + route;
  dialed_.reason = reason();
  const Key session = other_->session();
  dialed_.wire = local_.other_wire(other_->take(), poller_, session, WireSide::kConnector, self_,
                                   peer_, &dialed_.watched);
  if (dialed_.watched != nullptr) dialed_.lifeline = local_.lifeline_to(self_, peer_, poller_);
  return true;
}

void Dialer::next_stage(const std::string& why) {
  setbacks_[stage_] = why;
  if (++stage_ == stages_.size()) {
    stage_ = 0;
    resume_at_ = Deadline::Clock::now() + kPauseBetweenRounds;
  }
  begin_stage();
}

std::string Dialer::setbacks() const {
  std::string text;
  for (const auto& setback : setbacks_)
    if (!setback.empty()) text += (text.empty() ? "" : "; ") + setback;
  return text;
}

std::string Dialer::reason() const {
  const std::string before = setbacks();
  return std::string(same_host_ ? "same host" : "other host") +
         (before.empty() ? "" : "; " + before);
}

std::string Dialer::report() const {
  std::string now = shm_         ? "shm: no answer"
                    : connector_ ? connector_->report()
                    : other_     ? stages_[stage_] + ": " + other_->cause()
                                 : "";
  if (now.empty()) now = "none of its addresses can be reached from here";
  const std::string before = setbacks();
  return before.empty() ? now : before + "; " + now;
}

Deadline Dialer::next_timer() const {
  if (Deadline::Clock::now() < resume_at_) return Deadline::at(resume_at_);
  if (!shm_ && !connector_) return Deadline::after(kLookAgain);
  return shm_ ? Deadline::never() : connector_->next_timer();
}

}  // namespace hccl_like
