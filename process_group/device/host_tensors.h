#pragma once
// Host tensors whose memory peers on this host can map.
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include "device/device.h"

namespace hccl_like {

// torch's interface to the process's SharedPool. Where the system gives no shared memory, memory is
// ordinary.
c10::Allocator& mappable_host_allocator();

// at::empty() for a host tensor, in memory that peers can map if the tensor is too large for the
// board, if `options` ask for nothing special, and if there is such memory.
at::Tensor empty_mappable(at::IntArrayRef sizes, const at::TensorOptions& options);

// Where peers find the memory of a contiguous host tensor: of empty_mappable(), of symmetric
// memory, or one that torch shares by a file that it keeps open (Tensor.share_memory_() with the
// strategy file_descriptor). Nothing for any other.
std::optional<ExportedRange> share_host_tensor(const at::Tensor& tensor);

}  // namespace hccl_like
