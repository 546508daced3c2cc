#include <torch/csrc/utils/pybind.h>

#include "collectives/runtime.h"
#include "core/config.h"
#include "device/reduce/reduce.h"
#include "python/bindings/bindings.h"

namespace hccl_like {
namespace {

namespace py = pybind11;

py::list settings() {
  py::list rows;
  for (const Setting& setting : Config::settings()) {
    rows.append(py::make_tuple(std::string(setting.name), std::string(setting.default_value), std::string(setting.help)));
  }
  return rows;
}

}  // namespace

void bind_settings(py::module_& module) {
  module.def("settings", &settings, "Every setting: (name, default, help).");
  module.def("config", [] { return Config::from_environment().to_string(); },
             "The settings as the environment has them now, one a line; * marks those that are not the default.");
  module.def("reduction_target", &reduction_target, "The instruction set that reductions use on this processor.");
}

}  // namespace hccl_like
