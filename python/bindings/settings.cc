#include <sstream>
#include <string>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "collectives/runtime.h"
#include "core/config.h"
#include "device/reduce/reduce.h"
#include "python/bindings/bindings.h"

namespace hccl_like {
namespace {

namespace py = pybind11;

// "* NAME   = value" to value, in the order of Config::settings().
std::vector<std::string> values_in_force() {
  std::vector<std::string> values;
  std::istringstream lines(Config::from_environment().to_string());
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find(" = ");
    values.push_back(equals == std::string::npos ? "" : line.substr(equals + 3));
  }
  return values;
}

py::list settings() {
  py::list rows;
  const auto values = values_in_force();
  size_t i = 0;
  for (const Setting& setting : Config::settings()) {
    rows.append(py::make_tuple(std::string(setting.name), values.at(i++), std::string(setting.default_value),
                               std::string(setting.help)));
  }
  return rows;
}

}  // namespace

void bind_settings(py::module_& module) {
  module.def("settings", &settings, "Every setting: (name, value in force, default, help).");
  module.def("reduction_target", &reduction_target, "The instruction set that reductions use on this processor.");
}

}  // namespace hccl_like
