#pragma once
// Reductions and copies between the symmetric memories of a group.
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "process_group/calls/reduce_op.h"
#include "process_group/symmetric/memory.h"

namespace hccl_like {

// out = sources[0] op sources[1] op ..., in this order on every rank: results are bitwise equal.
struct PeerReduction {
  at::Tensor out;
  std::vector<at::Tensor> sources;  // with the sizes of `out`, on any rank
};
struct PeerCopy {
  at::Tensor to;
  at::Tensor from;
};

// Work of a rank between two barriers. Other ranks must not read its output in the same phase.
struct Phase {
  std::vector<PeerReduction> reductions;
  std::vector<PeerCopy> copies;
};

// The tensor at the same offset in `rank`'s memory.
at::Tensor counterpart(Memory& memory, const at::Tensor& tensor, int rank);
// Counterparts on all ranks, this rank included.
std::vector<at::Tensor> counterparts(Memory& memory, const at::Tensor& tensor);

// Runs the phases with a barrier before each and one at the end, in current-stream order. Tensors
// have contiguous rows. The host computes and rounds once if it can address device memory, else
// plugin kernels or torch operators compute. `what` names the call in errors.
void exchange(Memory& memory, const char* what, const std::vector<Phase>& phases,
              const Reducing& reducing);

}  // namespace hccl_like
