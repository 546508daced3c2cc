// Large calls of a device whose memory host code cannot address, and whose streams run no host code.
#include "collectives/engine.h"
#include "process_group/device_capabilities.h"
#include "process_group/issuer.h"

namespace hccl_like {
namespace {

// What the engine has in flight of one operation at once.
size_t bytes_of_lap(const Communicator& communicator) {
  const Config& config = communicator.engine().config();
  return config.lap_bytes * config.lap_window;
}

}  // namespace

// Depends on nothing but what the ranks agree about, if their devices are alike: the request's sizes, and settings.
std::optional<Laps> Issuer::laps_for(const Issue& issue, const Group& group,
                                     const DeviceAccess& access) {
  if (access.direct() || issue.requests.size() != 1) return std::nullopt;
  const Communicator& communicator = *group.communicator_of(issue);
  if (communicator.size() == 1) return std::nullopt;
  if (!capabilities_of(access.device()).has(Feature::kOffsetCopies)) return std::nullopt;
  return laps_of(issue.requests.front(), communicator.size(), bytes_of_lap(communicator));
}

std::shared_ptr<Staging> Issuer::staging(const Group& group, const DeviceAccess& access) {
  std::lock_guard lock(mutex_);
  auto& staging = stagings_[access.device().index()];
  if (!staging)
    staging = std::make_shared<Staging>(group.session->devices(), access,
                                        bytes_of_lap(*group.communicators->host()));
  return staging;
}

std::shared_ptr<Pending> Issuer::launch_staged(const Issue& issue, const Group& group,
                                               const DeviceAccess& access, const Laps& laps,
                                               Work* work) {
  const auto& communicator = group.communicator_of(issue);
  const auto staging = this->staging(group, access);
  const auto pending =
      std::make_shared<Pending>(Pending::Kind::kStaged, group.session, communicator);
  {
    std::lock_guard lock(staging_mutex_);
    auto call =
        staging->prepare(issue.requests.front(), laps, call_timeout(issue), communicator, pending);
    if (work != nullptr) work->set_pending(pending, pending->operations().front()->sequence());
    if (issue.async) {
      std::lock_guard list_lock(mutex_);
      pending_.push_back(pending);
    }
    diagnosis_.launching(issue, pending);
    staging->launch(std::move(call));
  }
  diagnosis_.launched(issue, group.session->completer(), pending);
  return pending;
}

}  // namespace hccl_like
