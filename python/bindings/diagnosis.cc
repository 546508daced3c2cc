#include <torch/csrc/utils/pybind.h>

#include "process_group/backend/backend.h"
#include "process_group/backend/control_plane.h"
#include "process_group/diagnosis/errors.h"
#include "process_group/diagnosis/flight_recorder_dump.h"
#include "python/bindings/bindings.h"
#include "python/bindings/holder.h"
#include "python/bindings/process.h"

namespace hccl_like {
namespace {

namespace py = pybind11;
using gil_free = py::call_guard<py::gil_scoped_release>;
using BackendClass = py::class_<Backend, GilFreePointer<Backend>, c10d::Backend>;

void begin_estimate(Backend& backend) {
  translated("hccl-like", [&] { backend.diagnosis().estimate().begin(); });
}

double end_estimate(Backend& backend) {
  return translated("hccl-like", [&] { return backend.diagnosis().estimate().end(); });
}

py::bytes pickle(bool calls, bool stacks, bool only_active) {
  std::string dump;
  {
    py::gil_scoped_release release;
    dump = dump_pickle(process().recorder, {calls, stacks, only_active});
  }
  return dump;
}

std::string json(bool calls, bool only_active) {
  return dump_json(process().recorder, {.calls = calls, .only_active = only_active});
}

std::string write(int rank) {
  return translated("hccl-like", [&] { return write_dump(process().recorder, rank); });
}

}  // namespace

void bind_diagnosis(py::module_& module) {
  py::reinterpret_borrow<BackendClass>(module.attr("ProcessGroupHcclLike"))
      .def("_start_time_estimate", &begin_estimate, gil_free(),
           "From now on calls are not made but their times added up.")
      .def("_end_time_estimate", &end_estimate, gil_free(),
           "Microseconds that the calls since _start_time_estimate() would take, one after the "
           "other.");
  module.def("_dump_fr_trace", &pickle, py::arg("includeCollectives") = true,
             py::arg("includeStackTraces") = true, py::arg("onlyActive") = false,
             "The flight recorder, pickled as torch's analyser reads it.");
  module.def("_dump_fr_trace_json", &json, py::arg("includeCollectives") = true,
             py::arg("onlyActive") = false, gil_free(), "The flight recorder as JSON.");
  module.def("_write_fr_trace", &write, py::arg("rank"), gil_free(),
             "Writes the pickle to the file where torch's analyser looks for that of this global "
             "rank; returns its path.");
  register_handlers(process().recorder, &current_session);
}

}  // namespace hccl_like
