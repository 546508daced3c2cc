#include "collectives/runtime.h"

#include "core/log.h"

namespace hccl_like {

Runtime::Runtime(Config config)
    : config_(std::move(config)), mesh_(config_, poller_), engine_(config_, poller_, mesh_) {}

Runtime::~Runtime() = default;

std::shared_ptr<Communicator> Runtime::create(Store& store, int rank, int size, std::string name,
                                              std::chrono::milliseconds timeout,
                                              Deadline deadline) {
  Roster roster = mesh_.exchange(store, rank, size, deadline);
  Communicator::Identity identity;
  identity.id = roster.communicator;
  identity.rank = rank;
  identity.name = std::move(name);
  identity.timeout = timeout;
  engine_.with_mesh([&](Mesh& mesh, const std::function<void()>& idle) {
    identity.links = mesh.connect(roster.members, rank, deadline, idle);
    for (const Link* link : identity.links)
      identity.routes.push_back(link == nullptr ? "" : mesh.describe(*link));
  });
  identity.members = std::move(roster.members);
  return Communicator::create(engine_, std::move(identity));
}

}  // namespace hccl_like
