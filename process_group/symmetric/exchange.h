#pragma once
// Reductions and copies between the symmetric memories of all ranks of a group.
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "process_group/calls/reduce_op.h"
#include "process_group/symmetric/memory.h"

namespace hccl_like {

// out = sources[0] op sources[1] op ..., in this order on every rank, so all ranks get the same
// bits.
struct PeerReduction {
  at::Tensor out;
  std::vector<at::Tensor> sources;  // with the sizes of `out`, on any rank
};
struct PeerCopy {
  at::Tensor to;
  at::Tensor from;
};

// What a rank does between two meetings of all of them. Nothing written here is read by another
// rank in the same phase.
struct Phase {
  std::vector<PeerReduction> reductions;
  std::vector<PeerCopy> copies;
};

// The tensor that has the same place in `rank`'s memory as `tensor` in ours.
at::Tensor counterpart(Memory& memory, const at::Tensor& tensor, int rank);
// Of all ranks, ours included.
std::vector<at::Tensor> counterparts(Memory& memory, const at::Tensor& tensor);

// All ranks meet, do the first phase, meet, and so on, and meet at the end: then nobody reads the
// others' memory any more. In the order of the current stream. Every tensor is contiguous but for
// its rows, which are. Where host code may touch the device's memory it does the work, rounding
// once; else the device's own operators do. `what` is for errors.
void exchange(Memory& memory, const char* what, const std::vector<Phase>& phases,
              const Reducing& reducing);

}  // namespace hccl_like
