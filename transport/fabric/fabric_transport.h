#pragma once
// Peers over libfabric: whatever network one of its providers knows.
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/settings/config.h"
#include "transport/wire/poller.h"
#include "transport/wire/transport.h"

namespace hccl_like {

// Opens an end-point of the provider that the settings name, or of the best. `hints`: where
// packages keep libfabric. Throws kUnsupported with the reason where there is none. The poller must
// outlive it.
std::unique_ptr<Transport> open_fabric(const Config& config, const std::vector<std::string>& hints,
                                       const std::string& self_id, Poller& poller);

}  // namespace hccl_like
