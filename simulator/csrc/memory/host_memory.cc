#include "memory/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace torch_sim {
namespace {

constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

// A line such as "MemAvailable:   12345 kB" of /proc/meminfo, in bytes.
size_t meminfo(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  for (size_t kib = 0; file >> key >> kib; std::getline(file, unit))
    if (key == name + ":") return kib * 1024;
  return kUnlimited;
}

// The folder of this process' control group (version 2), as seen from here.
std::string control_group() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("0::", 0) == 0) return "/sys/fs/cgroup" + line.substr(3);
  return {};
}

// A number in a file of the control group; "max" or no such file means unlimited.
size_t control_group_value(const std::string& name) {
  size_t value = 0;
  return std::ifstream(control_group() + "/" + name) >> value ? value : kUnlimited;
}

}  // namespace

size_t total_host_memory() {
  return std::min(meminfo("MemTotal"), control_group_value("memory.max"));
}

size_t available_host_memory() {
  size_t available = meminfo("MemAvailable");
  const size_t limit = control_group_value("memory.max");
  const size_t used = control_group_value("memory.current");
  if (limit != kUnlimited && used != kUnlimited)
    available = std::min(available, limit > used ? limit - used : 0);
  return available;
}

}  // namespace torch_sim
