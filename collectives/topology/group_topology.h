#pragma once
// What the cost model knows of a group, from what its processes say of themselves.
#include <vector>

#include "collectives/topology/topology.h"
#include "transport/mesh/mesh.h"

namespace hccl_like {

// Only what all ranks see alike: who shares a host or a machine with whom, and, where there is one
// machine, its cores.
Topology topology_of(const std::vector<ProcessRecord>& members);

}  // namespace hccl_like
