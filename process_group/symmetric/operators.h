#pragma once
// torch.ops.symm_mem on tensors of the host and of the accelerator.
#include <c10/core/DeviceType.h>

namespace hccl_like {

// Registers, for tensors on devices of this type (CPU or PrivateUse1), every operator that nobody
// has registered for them. The kernels have no C++ signature, so kernels of torch or of a vendor
// for the same operators may have any. Call once for each type.
void register_symmetric_operators(c10::DeviceType type);

}  // namespace hccl_like
