#include "transport/bootstrap_dialer.h"

#include <sys/socket.h>

#include <algorithm>

namespace hccl_like {
namespace {

constexpr std::chrono::milliseconds kPauseBetweenRounds{200};

}  // namespace

std::vector<std::string> common_transports(const std::vector<std::string>& ours,
                                           const ProcessRecord& self, const ProcessRecord& peer) {
  std::vector<std::string> common;
  for (const auto& transport : ours) {
    const bool shm = transport == "shm" && self.host == peer.host && !self.unix_name.empty() &&
                     !peer.unix_name.empty();
    const bool tcp = transport == "tcp" && self.port != 0 && peer.port != 0;
    if (shm || tcp) common.push_back(transport);
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
      peer_(peer),
      target_{peer.id, peer.nonce},
      same_host_(self.host == peer.host),
      poller_(poller),
      stages_(common_transports(local.transports, self, peer)),
      setbacks_(stages_.size()) {
  begin_stage();
}

void Dialer::begin_stage() {
  std::vector<Way> ways =
      stages_[stage_] == "shm" ? std::vector<Way>{way_to_unix(peer_.unix_name)} : tcp_ways();
  connector_ = std::make_unique<Connector>(local_.identity, target_, std::move(ways), poller_);
}

std::vector<Way> Dialer::tcp_ways() const {
  std::vector<Way> ways;
  for (const Address& address : order_for_connecting(peer_.addresses, local_.addresses, same_host_))
    ways.push_back(way_to(address, peer_.port));
  return ways;
}

bool Dialer::step() {
  if (Deadline::Clock::now() < resume_at_) return false;
  if (shm_) return step_shm();
  if (connector_->step()) return on_connected();
  // The last resort is tried for as long as there is time; shared memory is given up once it is known not to work.
  if (stage_ + 1 < stages_.size() && connector_->hopeless()) next_stage(connector_->report());
  return false;
}

bool Dialer::on_connected() {
  Fd socket = connector_->take();
  if (stages_[stage_] == "shm") {
    shm_ = std::make_unique<ShmHandshake>(std::move(socket), ShmHandshake::Side::kConnector,
                                          local_.shm_ring_bytes, poller_, local_.commons.get());
    return step_shm();
  }
  const std::string via = leaves_via(socket.get(), local_.addresses);
  dialed_.route = "tcp " + connector_->taken() + (via.empty() ? "" : " " + via);
  dialed_.reason = reason();
  dialed_.wire =
      std::make_unique<TcpWire>(std::move(socket), poller_, local_.tcp, connector_->taken());
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
  std::string now = shm_ ? "shm: no answer" : connector_->report();
  if (now.empty()) now = "none of its addresses can be reached from here";
  const std::string before = setbacks();
  return before.empty() ? now : before + "; " + now;
}

Deadline Dialer::next_timer() const {
  if (Deadline::Clock::now() < resume_at_) return Deadline::at(resume_at_);
  return shm_ ? Deadline::never() : connector_->next_timer();
}

}  // namespace hccl_like
