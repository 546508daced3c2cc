#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace torch_sim {

// Pinned host memory as torch knows it.
at::HostAllocator& host_allocator();

bool is_pinned(const void* at);

// The stream will read or write pinned memory at this place. False if it is not pinned.
bool record_pinned_use(const void* at, const c10::Stream& stream);

}  // namespace torch_sim
