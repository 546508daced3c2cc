#pragma once
// Finds NaNs in the input of a call (HCCL_LIKE_NAN_CHECK).
#include <optional>

#include "core/base/error.h"
#include "process_group/calls/calls.h"

namespace hccl_like {

// The first NaN in this rank's input, as a kNan error. Waits for the work queued on the device.
std::optional<Error> find_nan(const Issue& issue, int rank);

}  // namespace hccl_like
