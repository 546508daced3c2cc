#pragma once
// Hardware of the host: processors, NUMA nodes, network interfaces.
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hccl_like {

struct Machine {
  struct Nic {
    std::string name;  // "eth0"
    std::string pci;   // "0000:3b:00.0"; empty: not a PCI function
    int node = -1;     // NUMA node, -1: unknown
    int megabits = 0;  // megabits/s, 0: unknown
    friend bool operator==(const Nic&, const Nic&) = default;
  };
  int sockets = 0, nodes = 0, cores = 0, threads = 0;  // 0: unknown
  std::vector<Nic> nics;
  friend bool operator==(const Machine&, const Machine&) = default;
};

// Inspects this host with libhwloc (hwloc.org), loaded at run time. Without it, a Machine has only
// threads and interface names, and `missing` tells so. Takes tens of milliseconds; blocks;
// thread-safe. As in all hwloc programs, HWLOC_XMLFILE substitutes another machine.
struct Look {
  Machine machine;
  std::string missing;  // a sentence; empty: complete
  // [device][NIC] in the given order: common ancestor: "bridge" (PCI), "node", "socket", "host";
  // "?": unknown.
  std::vector<std::vector<std::string>> distances;
};
Look look_at_machine(std::span<const std::string> device_pci = {});

// True if the launcher's environment marks this process as the first on its host.
bool first_process_here();
// The launcher's number of this process on its host, if it says so.
std::optional<int> local_rank();

}  // namespace hccl_like
