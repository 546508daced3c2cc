#pragma once
// The topics of the module `_C`, one file each.
#include <torch/csrc/utils/pybind.h>

namespace hccl_like {

void bind_options(pybind11::module_& module);
void bind_backend(pybind11::module_& module);     // after bind_options
void bind_suspension(pybind11::module_& module);  // after bind_backend
void bind_diagnosis(pybind11::module_& module);   // after bind_backend
void bind_settings(pybind11::module_& module);
// Algorithms of users.
void bind_schedules(pybind11::module_& module);
void bind_devices(pybind11::module_& module);
void bind_machine(pybind11::module_& module);
void bind_memory(pybind11::module_& module);
// Registers symmetric memory for the host and the accelerator with torch.
void bind_symmetric(pybind11::module_& module);
void bind_transports(pybind11::module_& module);
// Adds Python source lines to errors and tables.
void bind_program();
// Waiting threads handle signals as Python does.
void bind_signals();

}  // namespace hccl_like
