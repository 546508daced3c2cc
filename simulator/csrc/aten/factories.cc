// Making tensors.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/TensorFactories.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "base/flaws.h"
#include "glue/convert.h"
#include "glue/device_allocator.h"

namespace torch_sim {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

void check(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(c10::layout_or_default(layout) == c10::Layout::Strided,
              "sim: only strided tensors are supported, not ", c10::layout_or_default(layout));
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory), "Only dense CPU tensors can be pinned");
}

// torch's promise for torch.use_deterministic_algorithms: nobody sees what was in the memory
// before.
at::Tensor filled_if_asked(at::Tensor tensor) {
  if (at::globalContext().deterministicAlgorithms() &&
      at::globalContext().deterministicFillUninitializedMemory())
    at::native::fill_empty_deterministic_(tensor);
  return tensor;
}

// For a device that torch is told no index of.
class Unnumbered final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr data = device_allocator().allocate(bytes);
    data.unsafe_set_device(c10::Device(c10::DeviceType::PrivateUse1));
    return data;
  }
  c10::DeleterFnPtr raw_deleter() const override { return device_allocator().raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    device_allocator().copy_data(to, from, bytes);
  }
};

c10::Allocator& allocator_for(std::optional<c10::Device> device) {
  static auto& unnumbered = *new Unnumbered();
  if (has(Flaw::kNoIndices) && !(device && device->has_index())) return unnumbered;
  return device_allocator();
}

at::Tensor empty(at::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                 std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                 std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> format) {
  check(layout, pin_memory);
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return filled_if_asked(at::detail::empty_generic(size, &allocator_for(device), kKeys,
                                                   c10::dtype_or_default(dtype), format));
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                         std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  check(layout, pin_memory);
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return filled_if_asked(at::detail::empty_strided_generic(size, stride, &allocator_for(device),
                                                           kKeys, c10::dtype_or_default(dtype)));
}

// Memory that is not there, of a tensor that torch knows to be zero everywhere.
class NoMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t) override { return {nullptr, device_at(current_device())}; }
  void copy_data(void*, const void*, size_t) const override {}
};

at::Tensor zero_tensor(at::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                       std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                       std::optional<bool> pin_memory) {
  static auto& no_memory = *new NoMemory();
  check(layout, pin_memory);
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_generic(size, &no_memory, kKeys.add(c10::DispatchKey::ZeroTensor),
                                   c10::dtype_or_default(dtype), std::nullopt);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_efficientzerotensor", zero_tensor);
}

}  // namespace
}  // namespace torch_sim
