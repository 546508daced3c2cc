#include "process_group/calls/reduce_op.h"

#include <array>
#include <string>

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "device/reduce/reduce.h"
#include "process_group/calls/data_type.h"

namespace hccl_like {
namespace {

// Indexed by c10d::ReduceOp::RedOpType.
constexpr std::array kOps{ReduceOp::kSum,   ReduceOp::kAvg,    ReduceOp::kProduct,
                          ReduceOp::kMin,   ReduceOp::kMax,    ReduceOp::kBitAnd,
                          ReduceOp::kBitOr, ReduceOp::kBitXor, ReduceOp::kPreMulSum};

double premul_factor(const c10d::ReduceOp& op) {
  // torch 2.12 also accepts this older type name.
  const auto* supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (!supplement) {
    throw_misuse(
        "ReduceOp.PREMUL_SUM needs its factor: make it with "
        "torch.distributed._make_nccl_premul_sum(factor)");
  }
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item().toDouble()
                                             : supplement->double_factor;
}

}  // namespace

Reducing reducing(const c10d::ReduceOp& op, c10::ScalarType type) {
  const auto our_type = data_type(type);
  if (!our_type) {
    throw_error(ErrorCode::kUnsupported,
                std::string("tensors of type ") + c10::toString(type) +
                    " cannot be reduced; convert them first, to float32 say");
  }
  if (op.op_ >= kOps.size()) throw_misuse("this ReduceOp is no reduction; pass ReduceOp.SUM, say");
  Reducing result{.type = *our_type, .op = kOps[op.op_]};
  if (!reduction(result.type, result.op).valid()) {
    throw_error(ErrorCode::kUnsupported, "ReduceOp " + std::string(name(result.op)) +
                                             " is not defined on " +
                                             std::string(name(result.type)) +
                                             "; use another operation or convert the tensor");
  }
  if (result.op == ReduceOp::kPreMulSum) result.factor = premul_factor(op);
  return result;
}

}  // namespace hccl_like
