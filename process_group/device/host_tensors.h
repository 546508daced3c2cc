#pragma once
// Host tensors that local peers can map.
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include "device/device.h"

namespace hccl_like {

// torch allocator over the SharedPool of the process, with ordinary memory as fallback.
c10::Allocator& mappable_host_allocator();

// at::empty() for a host tensor. Uses mappable memory if the tensor exceeds a board payload,
// `options` are ordinary and no dispatch mode is active.
at::Tensor empty_mappable(at::IntArrayRef sizes, const at::TensorOptions& options);

// The range by which local peers can map a contiguous host tensor. Supports empty_mappable(),
// symmetric memory and Tensor.share_memory_() with the strategy file_descriptor. Returns nothing
// otherwise.
std::optional<ExportedRange> share_host_tensor(const at::Tensor& tensor);

}  // namespace hccl_like
