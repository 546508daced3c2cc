// The Python module hccl_like._C.
#include <torch/csrc/utils/pybind.h>

#include "python/bindings/bindings.h"
#include "python/bindings/process.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.doc() = "The native part of hccl-like.";
  // pybind11 must know the base classes, which torch's module defines.
  pybind11::module_::import("torch._C._distributed_c10d");
  hccl_like::bind_options(module);
  hccl_like::bind_backend(module);
  hccl_like::bind_suspension(module);
  hccl_like::bind_diagnosis(module);
  hccl_like::bind_settings(module);
  hccl_like::bind_schedules(module);
  hccl_like::bind_devices(module);
  hccl_like::bind_machine(module);
  hccl_like::bind_memory(module);
  hccl_like::bind_symmetric(module);
  hccl_like::bind_transports(module);
  hccl_like::bind_program();
  hccl_like::bind_signals();
  module.def("_close_all_groups", &hccl_like::close_all_groups, pybind11::arg("reason") = "",
             pybind11::call_guard<pybind11::gil_scoped_release>(),
             "Leaves every process group that is still open, without waiting long. Runs at the "
             "interpreter's exit; the reason is what ended the program too early.");
  module.def("_tell_untold_failure", &hccl_like::tell_untold_failure,
             pybind11::call_guard<pybind11::gil_scoped_release>(),
             "Raises the failure of a call that is over, if nobody was told of it.");
}
