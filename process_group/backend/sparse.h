#pragma once
// The sum of sparse tensors over all ranks.
#include "process_group/issue/issuer.h"

namespace hccl_like {

// Whether any of the tensors is sparse, in coordinate format (COO).
bool has_sparse(const Tensors& tensors);

// Replaces one COO tensor by the coalesced sum over all ranks, bitwise the same on each. Every rank
// passes its own number of elements; shapes must agree. Blocks the host until all ranks have said
// how many elements they have, also if the call is asynchronous: without these numbers nobody knows
// how much memory the rest needs. Throws what torch throws.
c10::intrusive_ptr<Work> sparse_all_reduce(Issuer& issuer, const Tensors& tensors,
                                           const c10d::AllreduceOptions& options, Place place);

}  // namespace hccl_like
