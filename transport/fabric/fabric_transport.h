#pragma once
// A Transport over libfabric, for any network of its providers.
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/settings/config.h"
#include "transport/wire/poller.h"
#include "transport/wire/transport.h"

namespace hccl_like {

// Opens an endpoint of the provider in the settings, or of the best one. `hints`: paths of
// libfabric in installed packages. Throws kUnsupported with the reason if there is none. The poller
// must outlive the transport.
std::unique_ptr<Transport> open_fabric(const Config& config, const std::vector<std::string>& hints,
                                       const std::string& self_id, Poller& poller);

}  // namespace hccl_like
