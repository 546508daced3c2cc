#pragma once
// Host memory through which a device's tensors go to the network.
#include <cstddef>
#include <string>

#include <ATen/core/Tensor.h>

#include "process_group/device/device_access.h"

namespace hccl_like {

// The best that the device can have, of: memory that peers on this host can map and that the plugin
// has registered; torch's pinned memory; the plugin's own; memory that peers can map, which the
// device knows nothing of.
struct StagingMemory {
  // Uninitialised. `access` must outlive it.
  static StagingMemory make(const DeviceAccess& access, size_t bytes);

  at::Tensor tensor;           // bytes, on the host
  const char* kind = nullptr;  // "pinned by torch", for logs
  // Ends before the tensor. Nothing that is queued may use it then.
  MappedRange held{};
};

}  // namespace hccl_like
