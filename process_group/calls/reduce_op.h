#pragma once
// Maps c10d reductions to ReduceOp.
#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "core/base/types.h"

namespace hccl_like {

struct Reducing {
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double factor = 1.0;  // kPreMulSum
};

// Throws kUnsupported if torch does not define the pair. May wait for a device PREMUL_SUM factor.
Reducing reducing(const c10d::ReduceOp& op, c10::ScalarType type);

}  // namespace hccl_like
