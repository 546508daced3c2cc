#pragma once
// Derives a group's topology and mix of devices from its processes' records, alike on all ranks.
#include <cstdint>
#include <vector>

#include "collectives/topology/topology.h"
#include "transport/mesh/mesh.h"

namespace hccl_like {

// Uses only data equal on all ranks: shared hosts, machines, and a single machine's cores.
Topology topology_of(const std::vector<ProcessRecord>& members);

// How the devices of the ranks differ, as far as they are known when a group is made
// (ProcessRecord::device).
enum class DeviceMix : uint8_t {
  kAlike,
  kDevices,  // one call may have tensors of several kinds of devices
  kHost,     // and host tensors on some ranks, device tensors on others
};
DeviceMix device_mix_of(const std::vector<ProcessRecord>& members);
// Whether the ranks' devices may differ although their records do not say so.
bool may_differ_unseen(const std::vector<ProcessRecord>& members);

}  // namespace hccl_like
