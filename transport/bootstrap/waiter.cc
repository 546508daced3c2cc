#include "transport/bootstrap/waiter.h"

#include "core/base/error.h"

namespace hccl_like {

Waiter::Waiter(const LocalEnd& local, const ProcessRecord& self, const ProcessRecord& peer,
               Poller& poller)
    : local_(local), self_(self), peer_(peer), target_(local.identity_of(peer)), poller_(poller) {
  for (const std::string& name : common_transports(local, self, peer)) {
    Transport* const transport = local.find(name);
    if (transport == nullptr) continue;
    try {
      auto wire = transport->connect(far_end(name, self, peer), WireSide::kAcceptor);
      waiting_.push_back(
          {transport, std::make_unique<WireGreeting>(std::move(wire), WireSide::kAcceptor,
                                                     local.identity, target_)});
    } catch (const Exception& exception) {
      failed(*transport, exception.error().message);
    }
  }
}

bool Waiter::step() {
  for (auto one = waiting_.begin(); one != waiting_.end();) {
    const auto state = one->greeting->step();
    if (state == WireGreeting::State::kDone) {
      const std::string route = one->transport->route(one->greeting->wire());
      dialed_.route = std::string(one->transport->name()) + (route.empty() ? "" : " " + route);
      const Key session = one->greeting->session();
      dialed_.wire = local_.other_wire(one->greeting->take(), poller_, session, WireSide::kAcceptor,
                                       self_, peer_, &dialed_.watched);
      waiting_.clear();
      return true;
    }
    if (state == WireGreeting::State::kFailed) {
      failed(*one->transport, one->greeting->cause());
      one = waiting_.erase(one);
    } else {
      ++one;
    }
  }
  return false;
}

void Waiter::failed(const Transport& transport, const std::string& why) {
  report_ += (report_.empty() ? "" : "; ") + std::string(transport.name()) + ": " + why;
}

}  // namespace hccl_like
