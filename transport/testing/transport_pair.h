#pragma once
// Two ends of a Transport in one process, connected, for wire_contract.h.
#include <array>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "transport/bootstrap/wire_greeting.h"
#include "transport/testing/wire_contract.h"
#include "transport/wire/transport.h"
#include "transport/wire/wire_wrapper.h"

namespace hccl_like {

using OpenEnd =
    std::function<std::unique_ptr<Transport>(const std::string& self_id, Poller& poller)>;

// A wire and the transports that it needs, which end after it: a base in front of it is destroyed
// behind it.
struct BothEnds {
  std::array<std::shared_ptr<Transport>, 2> transports;
};
class OwnedWire final : BothEnds, public WireWrapper {
 public:
  OwnedWire(std::array<std::shared_ptr<Transport>, 2> both, std::unique_ptr<Wire> wire)
      : BothEnds{std::move(both)}, WireWrapper(std::move(wire)) {}
};

// Opens two ends and lets them greet each other. Throws if they don't find each other within 20
// seconds. `together`: the ends close when both wires have, as a library wants that reaches into a
// peer's memory, which in another process would stay mapped; such a transport must not need its
// poller to close.
inline WirePair connected_pair(const OpenEnd& open, bool together = false) {
  WirePair pair;
  std::array<Identity, 2> identities;
  std::array<std::shared_ptr<Transport>, 2> ends;
  for (size_t i = 0; i < 2; ++i) {
    identities[i] = new_identity({});
    ends[i] = open(identities[i].id, *pair.pollers[i]);
  }
  std::array<std::unique_ptr<WireGreeting>, 2> greetings;
  for (size_t i = 0; i < 2; ++i) {
    const FarEnd peer{.id = identities[1 - i].id,
                      .hostname = "here",
                      .same_host = true,
                      .address = ends[1 - i]->address()};
    if (!ends[i]->can_reach(peer))
      throw_error(ErrorCode::kUnsupported, "one end thinks that it cannot reach the other");
    const WireSide side = i == 0 ? WireSide::kConnector : WireSide::kAcceptor;
    greetings[i] = std::make_unique<WireGreeting>(ends[i]->connect(peer, side), side, identities[i],
                                                  identities[1 - i]);
  }
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  std::array<bool, 2> done{};
  while (!done[0] || !done[1]) {
    for (size_t i = 0; i < 2; ++i) {
      pair.pollers[i]->poll();
      const auto state = greetings[i]->step();
      done[i] = state == WireGreeting::State::kDone;
      if (state == WireGreeting::State::kFailed || deadline.expired())
        throw_error(ErrorCode::kPeerLost, "the ends don't connect: " + greetings[i]->cause());
    }
  }
  for (size_t i = 0; i < 2; ++i) {
    const std::array needed{ends[i], together ? ends[1 - i] : nullptr};
    pair.ends[i] = std::make_unique<OwnedWire>(needed, greetings[i]->take());
  }
  return pair;
}

}  // namespace hccl_like
