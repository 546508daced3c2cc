#pragma once
// torch.ops.symm_mem on tensors of the host and of the accelerator.

namespace hccl_like {

// Registers every operator that such tensors can be served with and nobody has registered for them. To be called once.
void register_symmetric_operators();

}  // namespace hccl_like
