#pragma once
// The rows of the table (type x operation), one function per family of types. Each looks up the
// kernels of the instruction set that was found at run time; a null Reduction where the type does
// not have the operation.
#include "device/reduce/reduce.h"

namespace hccl_like::families {

Reduction full_float(DataType type, ReduceOp op) noexcept;    // float32, float64
Reduction narrow_float(DataType type, ReduceOp op) noexcept;  // 8 and 16 bits
Reduction complex(DataType type, ReduceOp op) noexcept;
Reduction integer(DataType type, ReduceOp op) noexcept;
Reduction boolean(DataType type, ReduceOp op) noexcept;

}  // namespace hccl_like::families
