// The connections of tcp wires after the first, and those in the place of broken ones.
#include <algorithm>
#include <utility>

#include "core/base/log.h"
#include "transport/link/traffic.h"
#include "transport/mesh/report.h"
#include "transport/mesh/state.h"

namespace hccl_like {

void Mesh::State::add_rails(const std::string& id, Link* link, const Dialed& dialed) {
  const Member& member = met.at(id);
  const ProcessRecord& record = member.record;
  Rails::Peer peer{
      .name = person(member.rank, record), .identity = local.identity_of(record), .ways = {}};
  for (size_t rail = 0; rail < dialed.railed->rails(); ++rail)
    peer.ways.push_back(local.tcp_ways(self, record, record.port, rail));
  railings.push_back({id, link,
                      Rails(*dialed.railed, dialed.side, local.identity, std::move(peer),
                            local.tcp_to(self, record), poller, dialed.address, dialed.via)});
  railings.back().route = railings.back().rails.route();
  rails_pending = true;
}

Mesh::State::Railing* Mesh::State::rails_of(const std::string& id) {
  const auto found = std::ranges::find_if(
      railings, [&](const Railing& one) { return one.id == id && !one.is_over(); });
  return found == railings.end() ? nullptr : &*found;
}

bool Mesh::State::expects_rail(const std::string& id, size_t index) {
  Railing* const railing = rails_of(id);
  if (railing == nullptr) return false;
  if (index < kAsksForRail) return railing->rails.expects(index);
  railing->rails.asked_for(index - kAsksForRail);
  return false;
}

// The peer makes a first connection: it has none to this process, so what this end has is of no
// use.
void Mesh::State::abandon_broken(const std::string& id) {
  if (Railing* const railing = rails_of(id)) railing->rails.abandon();
}

void Mesh::State::take_in_rail(Accepted accepted) {
  if (Railing* const railing = rails_of(accepted.peer_id))
    railing->rails.take_in(accepted.rail, std::move(accepted.socket), "from " + accepted.from);
}

void Mesh::State::step_rails() {
  rails_pending = false;
  std::erase_if(railings, [](const Railing& one) { return one.is_over(); });
  for (Railing& one : railings) {
    one.rails.step(connect_timeout, advice);
    rails_pending |= !one.rails.settled();
    const uint64_t replaced = one.rails.replaced();
    const size_t down = one.rails.down();
    if (replaced != one.replaced || down != one.down)
      one.link->traffic().rails(
          static_cast<uint32_t>(replaced - std::exchange(one.replaced, replaced)),
          static_cast<uint32_t>(one.down = down));
    if (std::string route = one.rails.route(); route != one.route) {
      one.route = std::move(route);
      if (const Known* known_one = find(one.id);
          known_one != nullptr && known_one->link == one.link) {
        Known now = *known_one;
        now.route = local.tcp_name() + " " + one.route;
        set_known(one.id, std::move(now));
        log_info([&] { return "the connections to a peer: " + describe(*one.link); });
      }
    }
  }
}

}  // namespace hccl_like
