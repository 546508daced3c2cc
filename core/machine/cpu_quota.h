#pragma once
// CPU quota of this process's control groups: a container may see 64 cores but own the time of two.
#include <cstddef>
#include <filesystem>
#include <optional>

namespace hccl_like {

// Whole cores, at least 1; nothing if unlimited.
std::optional<size_t> cpu_quota(const std::filesystem::path& proc = "/proc/self",
                                const std::filesystem::path& cgroups = "/sys/fs/cgroup");

}  // namespace hccl_like
