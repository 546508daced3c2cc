#include "process_group/device/host_tensors.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/MapAllocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <cstring>

#include "core/base/log.h"
#include "device/host/host_ipc.h"
#include "device/host/shared_pool.h"

namespace hccl_like {
namespace {

void free_block(void* at) { SharedPool::of_process().free(at); }

class Mappable final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device host(c10::kCPU);
    if (bytes == 0) return {nullptr, nullptr, &free_block, host};
    try {
      void* const at = SharedPool::of_process().allocate(bytes);
      return {at, at, &free_block, host};
    } catch (const Exception& exception) {
      log_info([&] { return std::string("a tensor is not shared: ") + exception.what(); });
      return c10::GetCPUAllocator()->allocate(bytes);
    }
  }
  // Null: fallback memory has another deleter.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

bool is_ordinary(const at::TensorOptions& options) {
  return options.device().is_cpu() && options.layout() == c10::kStrided &&
         !options.pinned_memory() && !options.requires_grad() &&
         !options.memory_format_opt().has_value();
}

// A call with one tensor of so few bytes goes over the board, and one with many of them is staged.
constexpr size_t kLeastMappable = 2 << 10;

}  // namespace

c10::Allocator& mappable_host_allocator() {
  static Mappable& allocator = *new Mappable;  // tensors may outlive everything else
  return allocator;
}

at::Tensor empty_mappable(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const auto bytes =
      static_cast<size_t>(c10::multiply_integers(sizes)) * options.dtype().itemsize();
  if (bytes < kLeastMappable || !is_ordinary(options) ||
      c10::impl::TorchDispatchModeTLS::any_modes_set())
    return at::empty(sizes, options);
  return at::detail::empty_generic(sizes, &mappable_host_allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::CPU),
                                   c10::typeMetaToScalarType(options.dtype()), std::nullopt);
}

std::optional<ExportedRange> share_host_tensor(const at::Tensor& tensor) {
  const void* const data = tensor.const_data_ptr();
  const size_t bytes = tensor.nbytes();
  if (auto range = shared_range(data, bytes)) return range;
  const auto* const mapped = at::MapAllocator::fromDataPtr(tensor.storage().data_ptr());
  if (mapped == nullptr || mapped->fd() < 0 ||
      (mapped->flags() & (at::ALLOCATOR_MAPPED_SHARED | at::ALLOCATOR_MAPPED_SHAREDMEM)) == 0)
    return std::nullopt;
  const auto offset = static_cast<uint64_t>(static_cast<const std::byte*>(data) -
                                            static_cast<const std::byte*>(mapped->data()));
  const auto file = SharedFileToken::of(mapped->fd());
  if (!file || offset + bytes > file->bytes) return std::nullopt;
  return ExportedRange{handle_of(*file), offset};
}

}  // namespace hccl_like
