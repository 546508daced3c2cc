// float32 and float64.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/reduce/full_float.cc"
#include <hwy/foreach_target.h>
// Highway's order: foreach_target.h first.
#include "device/reduce/families.h"
#include "device/reduce/float_ops-inl.h"
#include "device/reduce/kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hccl_like {
namespace HWY_NAMESPACE {

Reduction full_float_kernels(DataType type, ReduceOp op) {
  const auto& row =
      type == DataType::kFloat32 ? FloatRow<Native<float>>::kRow : FloatRow<Native<double>>::kRow;
  return row[static_cast<size_t>(op)];
}

}  // namespace HWY_NAMESPACE
}  // namespace hccl_like
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hccl_like {
HWY_EXPORT(full_float_kernels);
Reduction families::full_float(DataType type, ReduceOp op) noexcept {
  return HWY_DYNAMIC_DISPATCH(full_float_kernels)(type, op);
}
}  // namespace hccl_like
#endif
