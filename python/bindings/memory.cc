#include <ATen/ATen.h>
#include <torch/csrc/utils/pybind.h>

#include "device/host/shared_pool.h"
#include "process_group/device/host_tensors.h"
#include "python/bindings/bindings.h"
#include "python/bindings/process.h"

namespace hccl_like {
namespace {

namespace py = pybind11;

at::Tensor empty(const std::vector<int64_t>& sizes, at::ScalarType type) {
  return empty_mappable(sizes, at::TensorOptions().dtype(type));
}

py::object shared_range(const at::Tensor& tensor) {
  if (tensor.numel() == 0 || !tensor.is_contiguous()) return py::none();
  const auto range = process().devices.access(tensor.device()).share(tensor);
  if (!range) return py::none();
  const auto& bytes = range->handle.bytes;
  return py::make_tuple(py::bytes(reinterpret_cast<const char*>(bytes), sizeof bytes),
                        range->offset);
}

py::dict pool() {
  const auto stats = SharedPool::of_process().stats();
  return py::dict(py::arg("used") = stats.used, py::arg("reserved") = stats.reserved);
}

}  // namespace

void bind_memory(py::module_& module) {
  module.def("_empty", &empty, py::arg("sizes"), py::arg("dtype"),
             "An uninitialised host tensor that peers can map.");
  module.def("_shared_range", &shared_range, py::arg("tensor"),
             "Where peers find the tensor's memory, (handle, offset); None if they cannot.");
  module.def("_shared_pool", &pool, "Bytes of mappable host memory in use and in all.");
}

}  // namespace hccl_like
