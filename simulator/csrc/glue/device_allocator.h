#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

namespace torch_sim {

// The allocator torch knows: allocates on the current device, for its current stream.
c10::DeviceAllocator& device_allocator();

// Owned memory of `bytes` bytes on that device, for its current stream; null for no bytes. data()
// is a device pointer.
c10::DataPtr allocate_on(int device, size_t bytes);

// Frees what a DataPtr of `allocate_on` held; its context is the device pointer.
void free_device_memory(void* at);

// Keeps the memory, once it is free, until what is queued on the stream by then is done.
void record_use(const c10::DataPtr& data, const c10::Stream& stream);

}  // namespace torch_sim
