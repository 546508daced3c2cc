#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "collectives/own/own_algorithm.h"
#include "core/base/error.h"
#include "process_group/backend/own_algorithms.h"
#include "python/bindings/bindings.h"

namespace hccl_like {
namespace {

namespace py = pybind11;

std::string make_in_python(const std::string& collective, const std::string& name,
                           const std::vector<int>& layout) {
  const py::gil_scoped_acquire locked;
  const auto [json, error] = py::module_::import("hccl_like.schedule")
                                 .attr("_make_for_group")(collective, name, layout)
                                 .cast<std::pair<std::string, std::string>>();
  if (!error.empty()) throw_misuse(error);
  return json;
}

}  // namespace

void bind_schedules(py::module_& module) {
  set_own_algorithm_maker(&make_in_python);
  module.def(
      "_own_fault", [](const std::string& json) { return OwnAlgorithm::parse(json)->fault(); },
      py::arg("json"), py::call_guard<py::gil_scoped_release>(),
      "What is wrong with an algorithm in the JSON form of hccl_like.schedule; \"\" if nothing "
      "is.");
  module.def(
      "_own_text",
      [](const std::string& json, size_t root) {
        const auto own = OwnAlgorithm::parse(json);
        std::vector<std::string> ranks;
        const auto& by_root = own->schedules.by_root;
        for (const Schedule& schedule : by_root.at(by_root.size() > 1 ? root : 0))
          ranks.push_back(schedule.to_string());
        return ranks;
      },
      py::arg("json"), py::arg("root"), "Its schedules as text, by rank.");
}

}  // namespace hccl_like
