#pragma once
// One rank of a simulated job: a process with an engine of its own.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "collectives/engine/communicator.h"
#include "collectives/engine/engine.h"
#include "tests/fault_simulation/calls.h"
#include "tests/fault_simulation/clock.h"
#include "transport/mesh/mesh.h"
#include "transport/wire/poller.h"

namespace hccl_like::fault_simulation {

// Of all ranks, and of some of them.
inline constexpr int kGroups = 2;

inline size_t index(int rank) { return static_cast<size_t>(rank); }

// A call that was made.
struct Task {
  Prepared prepared;
  std::vector<std::shared_ptr<Operation>> operations;
  Time launched = -1;
  bool altered = false;  // not what the others call
  bool over = false;

  bool done() const {
    for (const auto& operation : operations)
      if (!operation->done()) return false;
    return true;
  }
};

// A rank's communicator and calls in one group.
struct Part {
  std::shared_ptr<Communicator> communicator;  // null if it is not in it
  std::vector<std::unique_ptr<Task>> tasks;
  bool failed = false;

  size_t under_way() const {
    size_t count = 0;
    for (const auto& task : tasks) count += !task->over;
    return count;
  }
  bool running() const { return under_way() > 0; }
  bool settled(size_t calls) const {
    return !communicator || (!running() && (failed || tasks.size() == calls));
  }
};

struct Seat {
  explicit Seat(const Config& config)
      : mesh(config, poller), engine(config, poller, mesh), turns(engine) {}

  // The world, and the group of some.
  void join(Communicator::Identity identity, const std::vector<int>& some) {
    identity.links.assign(identity.members.size(), nullptr);
    for (size_t peer = 0, at = 0; peer < identity.links.size(); ++peer)
      if (peer != index(identity.rank)) identity.links[peer] = mesh.links()[at++].get();
    const int rank = identity.rank;
    parts[0].communicator = Communicator::create(engine, std::move(identity));
    if (some.empty()) return;
    const bool in = std::find(some.begin(), some.end(), rank) != some.end();
    parts[1].communicator = parts[0].communicator->split(
        in ? std::span<const int>(some) : std::span<const int>(), "some");
  }
  bool running() const { return parts[0].running() || parts[1].running(); }
  // An engine may not go while it runs anything.
  void end() {
    for (Part& part : parts) {
      if (part.communicator && part.running()) part.communicator->abort("the end");
      part.tasks.clear();
      part.communicator.reset();
    }
  }

  Poller poller;
  Mesh mesh;
  Engine engine;
  Engine::Turns turns;
  std::array<Part, kGroups> parts;
  bool leaving = false, left = false;
  Time farewell_ends = -1, nap = 10 * kMicrosecond;
};

}  // namespace hccl_like::fault_simulation
