#pragma once
// How much processor time the control groups of this process allow: a container may see 64 cores
// and have the time of two.
#include <cstddef>
#include <filesystem>
#include <optional>

namespace hccl_like {

// Whole cores, at least 1; nothing if there is no limit. `proc` and `cgroups`: /proc/self and
// /sys/fs/cgroup.
std::optional<size_t> cpu_quota(const std::filesystem::path& proc = "/proc/self",
                                const std::filesystem::path& cgroups = "/sys/fs/cgroup");

}  // namespace hccl_like
