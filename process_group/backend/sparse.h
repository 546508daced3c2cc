#pragma once
// The sum of sparse tensors over all ranks.
#include "process_group/issue/issuer.h"

namespace hccl_like {

bool has_sparse(const Tensors& tensors);

// Replaces one COO tensor by the coalesced sum over all ranks, bitwise the same on each. Ranks may
// pass different numbers of elements; shapes must agree. Blocks the host, even if asynchronous,
// until all ranks have sent their number of elements, to size memory. Throws torch errors.
c10::intrusive_ptr<Work> sparse_all_reduce(Issuer& issuer, const Tensors& tensors,
                                           const c10d::AllreduceOptions& options, RankInfo self);

}  // namespace hccl_like
