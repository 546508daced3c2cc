#include "collectives/topology/group_topology.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "transport/bootstrap/host.h"

namespace hccl_like {

Topology topology_of(const std::vector<ProcessRecord>& members) {
  std::map<std::string_view, int> numbers;
  std::vector<int> host_by_rank;
  for (const ProcessRecord& member : members)
    host_by_rank.push_back(
        numbers.try_emplace(member.host, static_cast<int>(numbers.size())).first->second);
  Topology topology{.hosts = Hosts::of(host_by_rank)};
  const bool one_machine = std::ranges::all_of(members, [&](const ProcessRecord& one) {
    return machine_of(one.host) == machine_of(members[0].host);
  });
  const auto cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (topology.hosts.count() == 1)
    topology.cores_per_host = cores;
  else if (one_machine && topology.hosts.most() == 1)
    topology = Topology::one_machine(topology.size(), cores);
  const bool shared =
      std::ranges::none_of(members, [](const auto& one) { return one.unix_name.empty(); });
  if (!shared) topology.local = kTcpLoopback;
  return topology;
}

DeviceMix device_mix_of(const std::vector<ProcessRecord>& members) {
  const auto any_has = [&](std::string_view device) {
    return std::ranges::any_of(members, [&](const auto& one) { return one.device == device; });
  };
  if (any_has(kAnyDevice)) return DeviceMix::kHost;
  const bool alike = std::ranges::all_of(
      members, [&](const auto& one) { return one.device == members[0].device; });
  if (alike) return DeviceMix::kAlike;
  return any_has("") ? DeviceMix::kHost : DeviceMix::kDevices;
}

bool may_differ_unseen(const std::vector<ProcessRecord>& members) {
  return device_mix_of(members) == DeviceMix::kAlike && !members[0].device.empty();
}

}  // namespace hccl_like
