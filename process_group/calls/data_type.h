#pragma once
// torch's element types as ours.
#include <optional>

#include <c10/core/ScalarType.h>

#include "core/base/types.h"

namespace hccl_like {

// Nothing for types that no reduction is defined on (quantised types, 16-bit complex, ...).
std::optional<DataType> data_type(c10::ScalarType type);

}  // namespace hccl_like
