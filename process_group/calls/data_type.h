#pragma once
// Maps torch element types to DataType.
#include <optional>

#include <c10/core/ScalarType.h>

#include "core/base/types.h"

namespace hccl_like {

// Returns nothing for types without reductions (quantised types, 16-bit complex, ...).
std::optional<DataType> data_type(c10::ScalarType type);

}  // namespace hccl_like
