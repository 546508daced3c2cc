// Accepts peers, and connects introduced peers on demand.
#include <chrono>

#include "core/base/error.h"
#include "core/base/log.h"
#include "transport/mesh/report.h"
#include "transport/mesh/state.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;

constexpr size_t kLazyDialersAtOnce = 128;
// How long an introduced peer may refuse connections before it counts as lost.
constexpr milliseconds kTimeoutWithRefusal{100};
// How long an accepted connection waits for this end's own attempt; only one of the two is kept.
constexpr milliseconds kHeldAtMost{1000};

}  // namespace

// A connection is wanted unless its process has a connected link. A broken link may be replaced:
// the peer may have abandoned a connection that this end considered established.
bool Mesh::State::wanted(const std::string& id, size_t rail) {
  if (rail == kLifelineRail) return takes_lifeline(id) != nullptr;
  if (rail == kCountersRail) return counters != nullptr;
  if (rail == kRosterRail) return rosters.expects();
  if (rail > 0) return expects_rail(id, rail);
  abandon_broken(id);
  if (has_connected(id) || is_upgrading(id)) return false;
  return find(id) != nullptr || early.admit();
}

// If both ends have started, the attempt of the higher id wins unless it fails.
bool Mesh::State::held(const std::string& id, size_t rail) {
  if (rail > 0) return false;
  const auto found = absent.find(id);
  if (found == absent.end() || !found->second.dialer || self.id < id) return false;
  const bool late = Deadline::Clock::now() - found->second.since > kHeldAtMost;
  return !late || found->second.dialer->is_committed();
}

const Mesh::State::Member& Mesh::State::meet(const ProcessRecord& record, int rank, int own_rank) {
  return met.insert_or_assign(record.id, Member{record, rank, own_rank}).first->second;
}

void Mesh::State::set_known(const std::string& id, Known one) {
  std::lock_guard lock(known_mutex);
  known[id] = std::move(one);
}

void Mesh::State::add(const std::string& id, Dialed dialed) {
  const LinkOptions& its = options_of(dialed.wire->transport());
  const auto found = absent.find(id);
  if (found == absent.end()) links.push_back(std::make_unique<Link>(std::move(dialed.wire), its));
  Link* const link = found == absent.end() ? links.back().get() : found->second.link;
  if (dialed.watched != nullptr) {
    lifelines.push_back(
        {id, link, dialed.watched, std::move(dialed.lifeline), Deadline::after(connect_timeout)});
    lifelines_pending = true;
  }
  if (dialed.railed != nullptr) add_rails(id, link, dialed);
  if (found == absent.end()) {
    set_known(id, {link, std::move(dialed.route), std::move(dialed.reason)});
    return;
  }
  Absent& peer = found->second;
  if (dialed.reason.empty())
    dialed.reason = self.host == peer.member->record.host ? "same host" : "other host";
  set_known(id, {link, std::move(dialed.route), std::move(dialed.reason)});
  link->attach(std::move(dialed.wire), its);
  log_info(
      [&] { return person(peer.member->rank, peer.member->record) + ": " + describe(*peer.link); });
  dialing.remove(&peer);
  absent.erase(found);
}

void Mesh::State::take_in(Accepted accepted) {
  if (accepted.rail == kLifelineRail) return take_in_lifeline(std::move(accepted));
  if (accepted.rail == kCountersRail)
    return tell_counters(accepted.socket.get(), accepted.session, counters->compact());
  if (accepted.rail == kRosterRail) return rosters.take_in(std::move(accepted.socket));
  if (accepted.rail > 0) return take_in_rail(std::move(accepted));
  if (const auto found = absent.find(accepted.peer_id);
      found != absent.end() && self.id > accepted.peer_id) {
    dialing.remove(&found->second);
    found->second.dialer.reset();
  }
  if (accepted.same_host) {
    upgrading.emplace_back(std::move(accepted.peer_id), std::move(accepted.socket), local, poller);
    return;
  }
  Dialed dialed;
  dialed.side = WireSide::kAcceptor;
  dialed.address = "from " + accepted.from;
  dialed.via = leaves_via(accepted.socket.get(), local.addresses);
  dialed.wire = local.tcp_wire(std::move(accepted.socket), poller,
                               local.tcp_to(self, met.at(accepted.peer_id).record), accepted.from,
                               accepted.session, WireSide::kAcceptor, &dialed.railed);
  dialed.route =
      local.tcp_name() + " " + dialed.address + (dialed.via.empty() ? "" : " " + dialed.via);
  add(accepted.peer_id, std::move(dialed));
}

// Accepts a peer that connected before it was introduced.
void Mesh::State::adopt(const std::string& id) {
  if (auto accepted = early.take(id)) take_in(std::move(*accepted));
}

void Mesh::State::step_handshakes() {
  for (auto one = upgrading.begin(); one != upgrading.end();) {
    if (!one->handshake.step()) {
      ++one;
      continue;
    }
    if (auto wire = one->handshake.take()) {
      add(one->peer_id, {.wire = std::move(wire), .route = "shm"});
    } else {
      log_info("a peer on this host cannot be joined by shared memory: " + one->handshake.cause());
      any_wanted = true;
    }
    one = upgrading.erase(one);
  }
}

void Mesh::State::accept() {
  early.begin_turn();
  // Handshakes first: a peer whose shared memory setup failed reconnects over tcp.
  step_handshakes();
  for (Accepted& one :
       acceptor.step([this](const std::string& id, size_t rail) { return wanted(id, rail); },
                     [this](const std::string& id, size_t rail) { return held(id, rail); }))
    if (one.rail == 0 && find(one.peer_id) == nullptr)
      early.hold(std::move(one));
    else
      take_in(std::move(one));
}

void Mesh::State::introduce(const ProcessRecord& record, int rank, int own_rank,
                            std::unique_ptr<LocalPeer> local_peer) {
  const std::string transport = common_transports(local, self, record).front();
  links.push_back(
      std::make_unique<Link>(transport, options_of(transport), std::move(local_peer), &any_wanted));
  Link* const link = links.back().get();
  set_known(record.id, {link, transport, "when it is needed"});
  absent.insert_or_assign(record.id, Absent{.member = &meet(record, rank, own_rank), .link = link});
}

void Mesh::State::dial_wanted() {
  any_wanted = false;
  for (auto& [id, peer] : absent) {
    if (peer.dialer || !peer.link->needs_wire() || is_upgrading(id)) continue;
    if (dialing.size() >= kLazyDialersAtOnce) {
      any_wanted = true;
      return;
    }
    peer.dialer = std::make_unique<Dialer>(local, self, peer.member->record, poller);
    peer.since = Deadline::Clock::now();
    dialing.push_back(&peer);
  }
}

void Mesh::State::step_dialing() {
  const auto now = Deadline::Clock::now();
  for (auto at = dialing.begin(); at != dialing.end();) {
    Absent& peer = **at++;  // the calls below may remove the peer from the list
    if (peer.link->failure() != nullptr) {
      give_up(peer, peer.link->failure()->message);
    } else if (peer.dialer->step()) {
      Dialed dialed = peer.dialer->take();
      const std::string id = peer.member->record.id;
      add(id, std::move(dialed));
    } else if (!peer.awaited && now - peer.since > connect_timeout) {
      give_up(peer, person(peer.member->own_rank, self) + " timed out connecting to " +
                        person(peer.member->rank, peer.member->record) + ": " +
                        peer.dialer->report() + advice);
    } else if (!peer.awaited && now - peer.since > kTimeoutWithRefusal &&
               peer.dialer->is_refused()) {
      give_up(peer, person(peer.member->own_rank, self) + " cannot connect to " +
                        person(peer.member->rank, peer.member->record) +
                        ", which has ended: " + peer.dialer->report());
    }
  }
}

void Mesh::State::give_up(Absent& peer, const std::string& why) {
  const bool late = Deadline::Clock::now() - peer.since > connect_timeout;
  set_known(peer.member->record.id,
            {peer.link, std::string(peer.link->transport()), "not reached"});
  peer.link->fail({late ? ErrorCode::kTimeout : ErrorCode::kPeerLost, why, peer.member->rank});
  dialing.remove(&peer);
  absent.erase(peer.member->record.id);
}

}  // namespace hccl_like
