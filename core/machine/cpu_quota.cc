#include "core/machine/cpu_quota.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace hccl_like {
namespace {

namespace fs = std::filesystem;

// The quota of one group: "<quota or max> <period>" in one file (v2), or in two files (v1).
std::optional<size_t> quota_of(const fs::path& group) {
  long long quota = 0, period = 0;
  if (std::ifstream both(group / "cpu.max"); both) {
    if (!(both >> quota >> period)) return std::nullopt;  // "max"
  } else {
    std::ifstream(group / "cpu.cfs_quota_us") >> quota;
    std::ifstream(group / "cpu.cfs_period_us") >> period;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return static_cast<size_t>(std::max(quota / period, 1LL));
}

// Groups nest; every ancestor's limit applies.
std::optional<size_t> least_quota(const fs::path& root, fs::path group) {
  std::optional<size_t> least;
  while (true) {
    const auto one = quota_of(root / group);
    if (one && (!least || *one < *least)) least = one;
    if (group.empty()) return least;
    group = group.parent_path();
  }
}

}  // namespace

// Lines of /proc/self/cgroup: "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1).
std::optional<size_t> cpu_quota(const fs::path& proc, const fs::path& cgroups) {
  std::ifstream groups(proc / "cgroup");
  std::optional<size_t> least;
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    const fs::path group = fs::path(line.substr(second + 1)).relative_path();
    std::optional<size_t> one;
    if (controllers == ",,") one = least_quota(cgroups, group);
    if (controllers.find(",cpu,") != std::string::npos) one = least_quota(cgroups / "cpu", group);
    if (one && (!least || *one < *least)) least = one;
  }
  return least;
}

}  // namespace hccl_like
