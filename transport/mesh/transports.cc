#include "transport/mesh/transports.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/log.h"
#include "transport/fabric/fabric_transport.h"
#include "transport/loadable/loaded_transport.h"
#include "transport/loadable/module_library.h"
#include "transport/mpi/mpi_transport.h"

namespace hccl_like {
namespace {

bool is_built_in(const std::string& name) { return name == "shm" || name == "tcp"; }

[[noreturn]] void unknown(const std::string& name, const ModulePaths& modules) {
  std::string known = "shm, tcp, fabric, mpi";
  for (const auto& [module, path] : modules.paths) known += ", " + module;
  throw_misuse("HCCL_LIKE_TRANSPORTS: there is no transport '" + name + "'; there are " + known +
               ". A module is named in HCCL_LIKE_TRANSPORT_MODULES (name=/path/to.so), or brings " +
               "an entry point hccl_like.transports with it");
}

#ifdef HCCL_LIKE_WITH_FABRIC
constexpr auto fabric = open_fabric;
#else
std::unique_ptr<Transport> fabric(const Config&, const std::vector<std::string>&,
                                  const std::string&, Poller&) {
  throw_error(
      ErrorCode::kUnsupported,
      "the transport fabric was left out when this hccl-like was built: install libfabric-dev "
      "and build it again");
}
#endif

std::unique_ptr<Transport> open(const std::string& name, const Config& config,
                                const ModulePaths& modules, const std::string& self_id,
                                Poller& poller) {
  if (const auto broken = modules.broken.find(name); broken != modules.broken.end())
    throw_error(ErrorCode::kUnsupported,
                "the transport module '" + name + "' cannot be used: " + broken->second);
  const auto found = modules.paths.find(name);
  if (found == modules.paths.end()) {
    const auto packaged = modules.libraries.find(name);
    const auto hints =
        packaged == modules.libraries.end() ? std::vector<std::string>() : packaged->second;
    if (name == "mpi") {
      MpiWorld& world =
          MpiWorld::join(config.mpi_library, hints, Deadline::after(config.connect_timeout));
      return std::make_unique<MpiTransport>(world, self_id, poller);
    }
    if (name == "fabric") return fabric(config, hints, self_id, poller);
    unknown(name, modules);
  }
  return std::make_unique<LoadedTransport>(load_module(name, found->second), self_id, poller);
}

}  // namespace

OpenTransports open_transports(const Config& config, const ModulePaths& found,
                               const std::string& self_id, Poller& poller) {
  ModulePaths modules = found;
  for (const auto& [name, path] : config.transport_modules.paths) {
    modules.broken.erase(name);
    modules.paths[name] = path;
  }
  OpenTransports result;
  for (const std::string& name : config.transports) {
    if (is_built_in(name)) continue;
    try {
      result.open.push_back(open(name, config, modules, self_id, poller));
    } catch (const Exception& exception) {
      if (exception.code() == ErrorCode::kMisuse) throw;
      log_warn(exception.error().message);
      if (!result.setbacks.empty()) result.setbacks += "; ";
      result.setbacks += exception.error().message;
    }
  }
  if (result.open.empty() && std::ranges::none_of(config.transports, is_built_in))
    throw_error(ErrorCode::kUnsupported, "no transport is left: " + result.setbacks);
  return result;
}

}  // namespace hccl_like
