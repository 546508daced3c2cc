#pragma once
// Looks for NaNs in what a call reads (HCCL_LIKE_NAN_CHECK).
#include <optional>

#include "core/base/error.h"
#include "process_group/calls/calls.h"

namespace hccl_like {

// The first NaN in the memory that this rank gives to the call, as an error of kNan; nothing if
// there is none. Waits for what is queued on the device of the tensors.
std::optional<Error> find_nan(const Issue& issue, int rank);

}  // namespace hccl_like
