#pragma once
// Rows of the (type, operation) table, one function for each type family. Each looks up the kernels
// of the instruction set chosen at run time. A null Reduction means an undefined operation.
#include "device/reduce/reduce.h"

namespace hccl_like::families {

Reduction full_float(DataType type, ReduceOp op) noexcept;    // float32, float64
Reduction narrow_float(DataType type, ReduceOp op) noexcept;  // 8 and 16 bits
Reduction complex(DataType type, ReduceOp op) noexcept;
Reduction integer(DataType type, ReduceOp op) noexcept;
Reduction boolean(DataType type, ReduceOp op) noexcept;

}  // namespace hccl_like::families
