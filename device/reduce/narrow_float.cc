// float16, bfloat16, 8-bit floats: computed as float32, rounded once to nearest even.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/reduce/narrow_float.cc"
#include <hwy/foreach_target.h>
// Highway's order: foreach_target.h first.
#include "device/reduce/families.h"
#include "device/reduce/float_ops-inl.h"
#include "device/reduce/kernel-inl.h"
#include "device/reduce/narrow_codecs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hccl_like {
namespace HWY_NAMESPACE {

// By DataType from kFloat16 on.
constexpr const Reduction* kNarrowFloatRows[] = {
    FloatRow<Converted<Float16Conversion>>::kRow,
    FloatRow<BFloat16>::kRow,
    FloatRow<Converted<BitConversion<Float8E4M3FNFormat>>>::kRow,
    FloatRow<Converted<BitConversion<Float8E5M2Format>>>::kRow,
};

Reduction narrow_float_kernels(DataType type, ReduceOp op) {
  const size_t row = static_cast<size_t>(type) - static_cast<size_t>(DataType::kFloat16);
  return kNarrowFloatRows[row][static_cast<size_t>(op)];
}

}  // namespace HWY_NAMESPACE
}  // namespace hccl_like
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hccl_like {
HWY_EXPORT(narrow_float_kernels);
Reduction families::narrow_float(DataType type, ReduceOp op) noexcept {
  return HWY_DYNAMIC_DISPATCH(narrow_float_kernels)(type, op);
}
}  // namespace hccl_like
#endif
