#pragma once
// What a host is made of, as far as it matters for communication: processors, memory nodes, network
// interfaces.
#include <span>
#include <string>
#include <vector>

namespace hccl_like {

struct Machine {
  struct Nic {
    std::string name;  // "eth0"
    std::string pci;   // "0000:3b:00.0", empty if it is no PCI function
    int node = -1;     // the NUMA node that it hangs on, -1 if unknown
    int megabits = 0;  // a second, 0 if unknown
    friend bool operator==(const Nic&, const Nic&) = default;
  };
  int sockets = 0, nodes = 0, cores = 0, threads = 0;  // 0: unknown
  std::vector<Nic> nics;
  friend bool operator==(const Machine&, const Machine&) = default;
};

// Looks at this host with libhwloc (hwloc.org), which is loaded for the purpose and need not be
// there: without it a Machine knows its threads and the names of its interfaces. `missing` says so
// then. Takes tens of milliseconds; blocks; any thread. HWLOC_XMLFILE stands for another machine,
// as in all programs that use hwloc.
struct Look {
  Machine machine;
  std::string missing;  // a sentence, empty if all is known
  // By device and NIC, both in the order given: what is the smallest thing that holds both:
  // "bridge" (of PCI Express), "node", "socket", "host"; "?" if either is unknown.
  std::vector<std::vector<std::string>> distances;
};
Look look_at_machine(std::span<const std::string> device_pci = {});

// Whether the launcher says that this is the first of its processes on this host: where nothing
// says so, none is.
bool first_process_here();

}  // namespace hccl_like
