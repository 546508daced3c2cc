#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <torch/library.h>

#include "glue/device_allocator.h"
#include "glue/resize_storage.h"

namespace torch_sim {

namespace {

void make_room(c10::TensorImpl* self) {
  if (self->numel() == 0) return;
  const size_t needed =
      at::detail::computeStorageNbytes(self->sizes(), self->strides(), self->dtype().itemsize(),
                                       static_cast<size_t>(self->storage_offset()));
  c10::StorageImpl* storage = self->storage().unsafeGetStorageImpl();
  TORCH_CHECK(storage, "Tensor: invalid null storage");
  if (needed > storage->nbytes()) resize_storage(*storage, needed);
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size,
                          std::optional<at::MemoryFormat> format) {
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  const auto bytes_before = static_cast<int64_t>(self.storage().nbytes());
  if (impl->sizes() != size) {
    impl->set_sizes_contiguous(size);
    make_room(impl);
  }
  if (format) impl->empty_tensor_restride(*format);
  if (at::globalContext().deterministicAlgorithms() &&
      at::globalContext().deterministicFillUninitializedMemory())
    at::native::fill_resize_deterministic_(self, bytes_before);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  if (stride.data())
    impl->set_sizes_and_strides(size, stride, offset);
  else {
    impl->set_storage_offset(offset);
    impl->set_sizes_contiguous(size);
  }
  make_room(impl);
  return self;
}

at::Tensor& set_to_storage(at::Tensor& self, at::Storage source) {
  const auto items = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(source), 0, {items}, {});
}

at::Tensor& set_to_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) return self;
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(),
                     source.strides());
}

at::Tensor& set_to_nothing(at::Tensor& self) {
  const c10::Device device = self.device();
  c10::Storage nothing(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, device),
                       &device_allocator(), true);
  return set_storage(self, std::move(nothing), 0, {0}, {});
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage", set_to_storage);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Tensor", set_to_tensor);
  m.impl("set_", set_to_nothing);
}

}  // namespace
}  // namespace torch_sim
