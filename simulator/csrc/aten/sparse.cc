// Sparse tensors in COO format: indices and values, two tensors of the device. What only puts them
// together, takes them apart or copies them is torch's own code, which is the same for every
// device; everything else comes to the fall-back.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_dimI_native.h>
#include <ATen/ops/_dimV_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/resize_as_sparse_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/sparse_resize_and_clear_native.h>
#include <ATen/ops/sparse_resize_native.h>
#include <ATen/ops/values_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "aten/fallback.h"

namespace torch_sim {
namespace {

using Dtype = std::optional<c10::ScalarType>;
using Layout = std::optional<c10::Layout>;
using Device = std::optional<c10::Device>;
using Format = std::optional<c10::MemoryFormat>;

// A new sparse tensor is on the current device, whatever was asked for.
at::Tensor with_dims(int64_t sparse_dim, int64_t dense_dim, at::IntArrayRef size, Dtype dtype,
                     Layout layout, Device device, std::optional<bool> pin_memory) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::native::new_with_dims_sparse(sparse_dim, dense_dim, size, dtype, layout, device,
                                          pin_memory);
}

at::Tensor with_dims_and_tensors(int64_t sparse_dim, int64_t dense_dim, c10::SymIntArrayRef size,
                                 const at::Tensor& indices, const at::Tensor& values, Dtype dtype,
                                 Layout layout, Device device, std::optional<bool> pin_memory,
                                 std::optional<bool> is_coalesced) {
  const c10::DeviceGuard guard(values.device());
  return at::native::new_with_dims_and_tensor_sparse_symint(sparse_dim, dense_dim, size, indices,
                                                            values, dtype, layout, device,
                                                            pin_memory, is_coalesced);
}

at::Tensor empty(c10::SymIntArrayRef size, Dtype dtype, Layout layout, Device device,
                 std::optional<bool> pin_memory, Format format) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::native::empty_sparse_symint(size, dtype, layout, device, pin_memory, format);
}

at::Tensor empty_like(const at::Tensor& self, Dtype dtype, Layout layout, Device device,
                      std::optional<bool> pin_memory, Format format) {
  const c10::DeviceGuard guard(device.value_or(self.device()));
  return at::native::empty_like_sparse_coo(self, dtype, layout, device, pin_memory, format);
}

at::Tensor clone(const at::Tensor& self, Format format) {
  const c10::DeviceGuard guard(self.device());
  return at::native::clone_sparse(self, format);
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_sparse_coo_tensor_with_dims", with_dims);
  m.impl("_sparse_coo_tensor_with_dims_and_tensors", with_dims_and_tensors);
  m.impl("empty.memory_format", empty);
  m.impl("empty_like", empty_like);

  m.impl("sparse_dim", at::native::sparse_dim_sparse);
  m.impl("dense_dim", at::native::dense_dim_sparse);
  m.impl("_dimI", at::native::sparse_dim_sparse);
  m.impl("_dimV", at::native::dense_dim_sparse);
  m.impl("_nnz", at::native::_nnz_sparse);
  m.impl("is_coalesced", at::native::is_coalesced_sparse);
  m.impl("_coalesced_", at::native::_coalesced_sparse_);
  m.impl("_indices", at::native::_indices_sparse);
  m.impl("_values", at::native::_values_sparse);
  m.impl("indices", at::native::indices_sparse);
  m.impl("values", at::native::values_sparse);

  m.impl("sparse_resize_", at::native::sparse_resize_);
  m.impl("sparse_resize_and_clear_", at::native::sparse_resize_and_clear_);
  m.impl("resize_as_sparse_", at::native::resize_as_sparse_);
  m.impl("copy_", at::native::copy_sparse_wrapper_);
  m.impl("copy_sparse_to_sparse_", at::native::copy_sparse_);
  m.impl("clone", clone);

  // torch has implementations of these for dense tensors that it would take before it comes to the
  // fall-back.
  for (const char* name : {"abs", "abs_", "deg2rad", "deg2rad_", "deg2rad.out", "isinf",
                           "is_pinned", "mv", "nan_to_num", "nan_to_num_", "permute", "rad2deg",
                           "rad2deg_", "rad2deg.out", "sum", "unsqueeze", "zeros.out"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_sparse_on_host>());
}

void refuse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op.schema().name(),
      ": sim has sparse tensors in COO format only, no compressed ones (CSR, CSC, BSR, "
      "BSC); keep those on the host");
}

TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

}  // namespace
}  // namespace torch_sim
