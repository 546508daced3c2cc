// Makes lifelines for wires other than shm and tcp, at the end that made the wire.
#include <chrono>

#include "core/base/log.h"
#include "transport/mesh/state.h"

namespace hccl_like {
namespace {

// How long a lifeline may be missed after it broke. The peer's kernel tells it in the same moment.
constexpr std::chrono::milliseconds kTimeToMake{800}, kTimeToCome{900};

}  // namespace

Mesh::State::Lifeline* Mesh::State::takes_lifeline(const std::string& id) {
  const auto found = std::ranges::find_if(lifelines, [&](const Lifeline& one) {
    return one.id == id && !one.makes && one.link->failure() == nullptr;
  });
  return found == lifelines.end() ? nullptr : &*found;
}

void Mesh::State::take_in_lifeline(Accepted accepted) {
  // Null if the wire has ended since.
  if (Lifeline* const one = takes_lifeline(accepted.peer_id); one != nullptr)
    one->wire->attach(std::move(accepted.socket));
}

void Mesh::State::step_lifelines() {
  lifelines_pending = false;
  std::erase_if(lifelines, [this](Lifeline& one) { return step_lifeline(one); });
}

// True if there is nothing more to do for the wire.
bool Mesh::State::step_lifeline(Lifeline& one) {
  if (one.link->failure() != nullptr) return true;
  if (!one.wire->misses_lifeline()) {
    if (one.breaks)
      log_warn("the TCP connection that watches the peer on " + one.wire->peer() +
               " was replaced: " + one.wire->cause());
    one.breaks = false;
    one.dialer.reset();
    return false;
  }
  if (!one.wire->cause().empty() && !one.breaks) {
    one.breaks = true;
    one.deadline = Deadline::after(one.makes ? kTimeToMake : kTimeToCome);
    if (one.makes) one.dialer = local.lifeline_to(self, met.at(one.id).record, poller);
  }
  if (one.dialer && one.dialer->step()) {
    one.wire->attach(one.dialer->take());
    return step_lifeline(one);
  }
  lifelines_pending = true;
  const bool refused = one.breaks && one.dialer && one.dialer->nobody_listens();
  if (!refused && !one.deadline.expired()) return false;
  if (one.breaks) {
    one.wire->give_up(one.wire->cause());
    return true;
  }
  // No error: TCP may be unavailable on this network.
  log_warn("the end of the peer on " + one.wire->peer() + " will be noticed only if " +
           std::string(one.wire->transport()) + " notices it: no TCP connection beside it" +
           (one.dialer ? ": " + one.dialer->report() : " was made by the peer"));
  return true;
}

}  // namespace hccl_like
