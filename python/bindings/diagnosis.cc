#include <torch/csrc/utils/pybind.h>

#include "process_group/backend.h"
#include "process_group/errors.h"
#include "python/bindings/bindings.h"
#include "python/bindings/holder.h"

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

}  // namespace

void bind_diagnosis(py::module_& module) {
  py::reinterpret_borrow<BackendClass>(module.attr("ProcessGroupHcclLike"))
      .def("_start_time_estimate", &begin_estimate, gil_free(),
           "From now on calls are not made but their times added up.")
      .def("_end_time_estimate", &end_estimate, gil_free(),
           "Microseconds that the calls since _start_time_estimate() would take, one after the "
           "other.");
}

}  // namespace hccl_like
