#pragma once
// Host memory that stages device tensors for the network.
#include <cstddef>
#include <string>

#include <ATen/core/Tensor.h>

#include "process_group/device/device_access.h"

namespace hccl_like {

// Takes the first available kind: peer-mappable memory registered with the plugin, torch's pinned
// memory, the plugin's memory, unregistered peer-mappable memory.
struct StagingMemory {
  // Uninitialised. `access` must outlive the result.
  static StagingMemory make(const DeviceAccess& access, size_t bytes);

  at::Tensor tensor;           // bytes, on the host
  const char* kind = nullptr;  // "pinned by torch", for logs
  // Released before the tensor. No queued work may use it then.
  MappedRange held{};
};

}  // namespace hccl_like
