#include <ATen/ATen.h>
#include <torch/csrc/utils/pybind.h>

#include "collectives/compression/compressed_messages.h"
#include "core/base/error.h"
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

// What messages between hosts carry of the floats, as docs/compression.md says.
void round_to_compression(const at::Tensor& tensor, const std::string& compression) {
  if (!tensor.is_cpu() || tensor.scalar_type() != at::kFloat || !tensor.is_contiguous())
    throw_misuse("only contiguous host tensors of float32 can be rounded");
  const Codec* const codec = hccl_like::codec(parse_compression(compression));
  if (codec == nullptr) return;
  const Pieces floats(static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes());
  const py::gil_scoped_release released;
  round_to_codec(*codec, floats, floats);
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
  module.def("_round_to_compression", &round_to_compression, py::arg("tensor"),
             py::arg("compression"),
             "Replaces float32 numbers on the host by those that other hosts would get.");
  module.def("_shared_pool", &pool, "Bytes of mappable host memory in use and in all.");
}

}  // namespace hccl_like
