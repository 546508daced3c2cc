#include <torch/csrc/utils/device_lazy_init.h>
#include <torch/csrc/utils/pybind.h>

#include "process_group/symmetric/allocator.h"
#include "python/bindings/bindings.h"
#include "python/bindings/process.h"

namespace hccl_like {
namespace {

// torch's bindings hold the GIL during these callbacks.
void without_python_lock(const std::function<void()>& body) {
  if (Py_IsInitialized() && PyGILState_Check()) {
    pybind11::gil_scoped_release release;
    body();
  } else {
    body();
  }
}

}  // namespace

void bind_symmetric(pybind11::module_& module) {
  register_symmetric_memory(process().devices, {.unlocked = without_python_lock,
                                                .prepare = torch::utils::device_lazy_init});
  module.attr("symmetric_memory_backend") = "hccl-like";
}

}  // namespace hccl_like
