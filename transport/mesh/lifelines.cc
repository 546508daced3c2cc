// Makes lifelines for wires other than shm and tcp, at the end that made the wire.
#include "core/base/log.h"
#include "transport/mesh/state.h"

namespace hccl_like {

Mesh::State::Lifeline* Mesh::State::awaits_lifeline(const std::string& id) {
  const auto found = std::ranges::find_if(lifelines, [&](const Lifeline& one) {
    return one.id == id && !one.dialer && one.link->failure() == nullptr &&
           one.wire->misses_lifeline();
  });
  return found == lifelines.end() ? nullptr : &*found;
}

void Mesh::State::take_in_lifeline(Accepted accepted) {
  // Null if the wire has ended since.
  if (Lifeline* const one = awaits_lifeline(accepted.peer_id); one != nullptr)
    one->wire->attach(std::move(accepted.socket));
}

// A missing lifeline is no error: TCP may be unavailable on this network.
void Mesh::State::step_lifelines() {
  std::erase_if(lifelines, [](Lifeline& one) {
    if (one.link->failure() != nullptr || !one.wire->misses_lifeline()) return true;
    if (one.dialer && one.dialer->step()) {
      one.wire->attach(one.dialer->take());
      return true;
    }
    if (!one.deadline.expired()) return false;
    log_warn("the end of the peer on " + one.wire->peer() + " will be noticed only if " +
             std::string(one.wire->transport()) + " notices it: no TCP connection beside it" +
             (one.dialer ? ": " + one.dialer->report() : " was made by the peer"));
    return true;
  });
}

}  // namespace hccl_like
