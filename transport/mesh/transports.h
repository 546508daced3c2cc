#pragma once
// Which transports there are beside shared memory and TCP, and which of them this process uses.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/settings/config.h"
#include "transport/wire/poller.h"
#include "transport/wire/transport.h"

namespace hccl_like {

// Modules by the name that HCCL_LIKE_TRANSPORTS knows them by.
struct ModulePaths {
  std::map<std::string, std::string> paths;   // of shared libraries
  std::map<std::string, std::string> broken;  // why there is none to load
  // Where packages keep libraries of others that transports load, by what they are for: "mpi",
  // "fabric".
  std::map<std::string, std::vector<std::string>> libraries;
};

struct OpenTransports {
  std::vector<std::unique_ptr<Transport>> open;  // as HCCL_LIKE_TRANSPORTS orders them
  std::string setbacks;                          // which did not open, and why; empty if all did
};

// Opens what config.transports names beside "shm" and "tcp"; modules of the settings go before
// those found. A name that nobody knows throws kMisuse. One that cannot be used here is warned
// about and left out; if no transport is left, that throws.
OpenTransports open_transports(const Config& config, const ModulePaths& found,
                               const std::string& self_id, Poller& poller);

}  // namespace hccl_like
