#pragma once
// Derives a group's Topology from the records of its processes.
#include <vector>

#include "collectives/topology/topology.h"
#include "transport/mesh/mesh.h"

namespace hccl_like {

// Uses only data equal on all ranks: shared hosts, machines, and a single machine's cores.
Topology topology_of(const std::vector<ProcessRecord>& members);

}  // namespace hccl_like
