#pragma once
// The transports other than shared memory and TCP, and which of them this process uses.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/settings/config.h"
#include "transport/wire/poller.h"
#include "transport/wire/transport.h"

namespace hccl_like {

// Modules by their name in HCCL_LIKE_TRANSPORTS.
struct ModulePaths {
  std::map<std::string, std::string> paths;   // of shared libraries
  std::map<std::string, std::string> broken;  // why the module cannot be loaded
  // Paths of third-party libraries in installed packages, by transport: "mpi", "fabric".
  std::map<std::string, std::vector<std::string>> libraries;
};

struct OpenTransports {
  std::vector<std::unique_ptr<Transport>> open;  // as HCCL_LIKE_TRANSPORTS orders them
  std::string setbacks;  // the transports that failed to open, and why; empty if none
};

// Opens the transports of config.transports other than "shm" and "tcp". Modules of the settings
// take precedence over `found`. Throws kMisuse for an unknown name. Skips an unusable transport
// with a warning; throws if no transport is left.
OpenTransports open_transports(const Config& config, const ModulePaths& found,
                               const std::string& self_id, Poller& poller);

}  // namespace hccl_like
