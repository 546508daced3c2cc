#pragma once
// c10d's reductions as ours.
#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "core/base/types.h"

namespace hccl_like {

struct Reducing {
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double factor = 1.0;  // kPreMulSum
};

// Throws kUnsupported, with a sentence, for a pair that torch does not define. May wait for the
// device when the factor of a premul-sum is a tensor on it.
Reducing reducing(const c10d::ReduceOp& op, c10::ScalarType type);

}  // namespace hccl_like
