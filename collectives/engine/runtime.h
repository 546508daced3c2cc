#pragma once
// The process-wide objects of collectives: settings, poller, mesh, engine.
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

// One per process serves all groups and must outlive all communicators. Opens its listeners when
// made. Starts the background thread only for operations that no caller waits for.
class Runtime {
 public:
  explicit Runtime(Config config, const ModulePaths& modules = {});
  ~Runtime();

  // Any thread; blocks. Meets the other ranks through the store and connects to them. Throws an
  // Exception that names the ranks missing at the deadline. `scope`, `device`: see
  // Mesh::exchange().
  std::shared_ptr<Communicator> create(Store& store, int rank, int size, std::string name,
                                       std::chrono::milliseconds timeout, Deadline deadline,
                                       std::string_view scope = {}, const std::string& device = {});

  const Config& config() const { return config_; }
  Engine& engine() { return engine_; }
  Mesh& mesh() { return mesh_; }

 private:
  Config config_;
  std::map<std::string, std::string> common_settings_;  // must be equal on all ranks
  const std::shared_ptr<const Profile> profile_;
  Poller poller_;
  Mesh mesh_;
  Engine engine_;
};

}  // namespace hccl_like
