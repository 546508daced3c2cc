#include <torch/csrc/utils/pybind.h>

#include "process_group/device/device_capabilities.h"
#include "process_group/device/devices.h"
#include "process_group/device/plugin_offers.h"
#include "process_group/staging/copy_costs.h"
#include "python/bindings/bindings.h"
#include "python/bindings/process.h"

namespace hccl_like {

namespace py = pybind11;

void bind_devices(py::module_& module) {
  module.def(
      "register_device_plugin",
      [](std::string name, std::string library_path) {
        process().devices.register_plugin(std::move(name), std::move(library_path));
      },
      py::arg("name"), py::arg("library_path"),
      "Devices that torch calls `name` are served by this shared library from now on. It is loaded "
      "when the first "
      "tensor of such a device is communicated.");
  module.def(
      "register_broken_device_plugin",
      [](std::string name, std::string reason) {
        process().devices.register_broken_plugin(std::move(name), std::move(reason));
      },
      py::arg("name"), py::arg("reason"),
      "Devices that torch calls `name` have a plugin that cannot be used; whoever uses them is "
      "told why.");
  module.def(
      "device_plugins", [] { return process().devices.plugins(); },
      "The plugins known: {name: library path}.");
  module.def(
      "describe_device",
      [](c10::Device device) { return process().devices.access(device).describe(); },
      py::arg("device"), py::call_guard<py::gil_scoped_release>(),
      "How tensors of a device (with an index) are reached and how calls on them are ordered.");
  module.def(
      "device_plugin_offers",
      [](c10::Device device) {
        std::vector<std::tuple<std::string, bool, std::string>> rows;
        const py::gil_scoped_release without;
        for (const PluginOffer& one : plugin_offers(process().devices.access(device)))
          rows.emplace_back(one.entries, one.present, one.consequence);
        return rows;
      },
      py::arg("device"),
      "What the plugin of a device (with an index) has entries for: a list of (entries, whether it "
      "has them, what follows). Empty if there is no plugin.");
  module.def(
      "device_part_copies",
      [](c10::Device device) -> std::optional<std::pair<std::optional<bool>, std::string>> {
        const py::gil_scoped_release without;
        Devices& devices = process().devices;
        const DeviceAccess& access = devices.access(device);
        if (access.direct() ||
            (access.plugin() == nullptr && !capabilities_of(device).has(Feature::kOffsetCopies)))
          return std::nullopt;
        const CopyCosts& costs = copy_costs_of(devices, access);
        return std::pair(costs.known ? std::optional(costs.per_block == 0) : std::nullopt,
                         costs.measured);
      },
      py::arg("device"),
      "(whether a device (with an index) copies a part of a block of memory for what the part is "
      "worth, None if that could not be measured; how that is known). Measured when first asked. "
      "None where large calls are not copied in parts.");
  module.def(
      "device_capabilities",
      [](const py::object& device) {
        const c10::Device asked(py::str(device).cast<std::string>());
        std::vector<std::tuple<std::string, bool, std::string, std::string>> rows;
        const py::gil_scoped_release without;
        if (asked.is_cpu()) return rows;
        for (const Capability& one : capabilities_of(asked).list())
          rows.emplace_back(one.name, one.present, one.reason, one.consequence);
        return rows;
      },
      py::arg("device"),
      "What torch's interfaces offer of an accelerator (with an index), found by trying: a list of "
      "(feature, whether it works, how that is known, what follows). Empty for the host.");
}

}  // namespace hccl_like
