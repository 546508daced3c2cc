#pragma once
// Everything a process needs for collectives, put together once: settings, poller, mesh, engine.
#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "collectives/engine/communicator.h"
#include "collectives/engine/engine.h"
#include "collectives/selection/profile.h"
#include "core/settings/config.h"
#include "transport/mesh/mesh.h"
#include "transport/network/store.h"
#include "transport/wire/poller.h"

namespace hccl_like {

// Opens its listeners when made and closes everything when destroyed; starts a thread only when an
// operation runs that nobody waits for. All communicators must be gone before it. One per process
// is what makes hundreds of groups cheap.
class Runtime {
 public:
  explicit Runtime(Config config, const ModulePaths& modules = {});
  ~Runtime();

  // Meets the other ranks through the store and connects to those that are not connected yet.
  // Blocks; any thread. Throws an Exception that names the ranks which did not come before the
  // deadline. `scope`: see Mesh::exchange().
  std::shared_ptr<Communicator> create(Store& store, int rank, int size, std::string name,
                                       std::chrono::milliseconds timeout, Deadline deadline,
                                       std::string_view scope = {});

  const Config& config() const { return config_; }
  Engine& engine() { return engine_; }
  Mesh& mesh() { return mesh_; }

 private:
  Config config_;
  std::map<std::string, std::string> common_settings_;  // that all ranks must have alike
  const std::shared_ptr<const Profile> profile_;
  Poller poller_;
  Mesh mesh_;
  Engine engine_;
};

}  // namespace hccl_like
