#pragma once
// torch.ops.symm_mem for host and accelerator tensors.
#include <c10/core/DeviceType.h>

namespace hccl_like {

// Registers every operator without a kernel for this device type (CPU or PrivateUse1). The kernels
// are boxed, so they coexist with torch or vendor kernels of any C++ signature. Call once per type.
void register_symmetric_operators(c10::DeviceType type);

}  // namespace hccl_like
