#include "python/bindings/machine.h"

#include "process_group/device/devices.h"
#include "python/bindings/bindings.h"
#include "python/bindings/process.h"

namespace hccl_like {

namespace py = pybind11;

py::dict as_dict(const Machine& machine) {
  py::list nics;
  for (const Machine::Nic& nic : machine.nics) {
    py::dict one;
    one["name"] = nic.name;
    one["pci"] = nic.pci;
    one["node"] = nic.node;
    one["megabits"] = nic.megabits;
    nics.append(one);
  }
  py::dict all;
  all["sockets"] = machine.sockets;
  all["nodes"] = machine.nodes;
  all["cores"] = machine.cores;
  all["threads"] = machine.threads;
  all["nics"] = nics;
  return all;
}

namespace {

py::dict look(const std::vector<std::string>& device_pci) {
  Look seen;
  {
    py::gil_scoped_release release;
    seen = look_at_machine(device_pci);
  }
  py::dict all = as_dict(seen.machine);
  all["missing"] = seen.missing;
  all["distances"] = seen.distances;
  return all;
}

// (PCI function, NUMA node) of a device, from its plugin; ("", -1) if unknown.
std::pair<std::string, int> place(c10::Device device) {
  const DeviceAccess& access = process().devices.access(device);
  if (access.plugin() == nullptr) return {"", -1};
  auto info = access.plugin()->info(access.plugin_index());
  if (!info.ok()) return {"", -1};
  return {info.value().pci, info.value().numa_node};
}

}  // namespace

void bind_machine(py::module_& module) {
  module.def("look_at_machine", &look, py::arg("device_pci") = std::vector<std::string>(),
             "What this host is made of, as a dict; `distances` by device and interface.");
  module.def("device_place", &place, py::arg("device"),
             "(PCI function, NUMA node) of a device with an index: (\"\", -1) if unknown.");
}

}  // namespace hccl_like
