#pragma once
// Error messages for ranks that cannot reach each other.
#include <string>
#include <string_view>
#include <vector>

#include "core/settings/config.h"
#include "transport/mesh/mesh.h"
#include "transport/network/address.h"

namespace hccl_like {

// "rank 3 (node7, process 4711)".
std::string person(int rank, const ProcessRecord& record);

// The same for a record that may be of another version, as far as it is readable.
std::string person(int rank, std::string_view record);

// This rank's network settings: ". This rank offers eth0 10.0.0.5: ..."; empty without tcp.
std::string network_advice(const Config& config, const std::vector<InterfaceAddress>& own);

}  // namespace hccl_like
