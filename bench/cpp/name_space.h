#pragma once
// Network namespaces that stand for hosts.
#include <string>
#include <vector>

namespace hccl_like::bench {

// Moves this process, which has one thread, into the network namespace that `ip netns` knows by
// this name. Throws kSystem.
void enter_name_space(const std::string& name);

// The namespace of each rank: neighbours share one.
const std::string& name_space_of(int rank, int ranks, const std::vector<std::string>& all);

}  // namespace hccl_like::bench
