#pragma once
// What people read when ranks cannot find each other.
#include <string>
#include <string_view>
#include <vector>

#include "core/settings/config.h"
#include "transport/mesh/mesh.h"
#include "transport/network/address.h"

namespace hccl_like {

// "rank 3 (node7, process 4711)".
std::string person(int rank, const ProcessRecord& record);

// The same of a record that may be of another version, as far as it can be read.
std::string person(int rank, std::string_view record);

// ". This rank offers eth0 10.0.0.5: ...": the settings that decide by which way peers come, with
// this rank's values. Empty if tcp is not to be used.
std::string network_advice(const Config& config, const std::vector<InterfaceAddress>& own);

}  // namespace hccl_like
