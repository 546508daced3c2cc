// Makes the further rails of tcp wires: the end that made the first connection makes all of them.
#include <algorithm>

#include "core/base/log.h"
#include "transport/mesh/state.h"

namespace hccl_like {

Mesh::State::Railing* Mesh::State::awaits_rail(const std::string& id, size_t rail) {
  const auto found = std::ranges::find_if(railings, [&](const Railing& one) {
    return one.id == id && !one.dialer && one.link->failure() == nullptr && one.wire->misses(rail);
  });
  return found == railings.end() ? nullptr : &*found;
}

void Mesh::State::take_in_rail(Accepted accepted) {
  Railing* const railing = awaits_rail(accepted.peer_id, accepted.rail);
  if (railing == nullptr) return;  // the wire has ended since
  railing->wire->attach(accepted.rail, std::make_unique<TcpWire>(std::move(accepted.socket), poller,
                                                                 local.tcp, accepted.from));
  railing->routes.push_back(accepted.from);
}

void Mesh::State::step_rails() {
  std::erase_if(railings, [this](Railing& one) {
    if (one.link->failure() != nullptr) return true;
    if (one.dialer) {
      if (!one.dialer->step(connect_timeout, advice)) return false;
      one.routes = one.dialer->routes();
    }
    if (one.wire->misses_any() || one.wire->failure() != nullptr) return false;
    if (Known* const known_one = find(one.id);
        known_one != nullptr && known_one->link == one.link) {
      Known now = *known_one;
      for (const auto& route : one.routes) now.route += " + " + route;
      set_known(one.id, std::move(now));
      log_info([&] { return "all rails are there: " + describe(*one.link); });
    }
    return true;
  });
}

}  // namespace hccl_like
