// bool: one byte. Any nonzero input counts as 1; results are 0 or 1.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/reduce/boolean.cc"
#include <hwy/foreach_target.h>
// Highway's order: foreach_target.h first.
#include "device/reduce/families.h"
#include "device/reduce/kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hccl_like {
namespace HWY_NAMESPACE {

struct Boolean : Native<uint8_t> {
  template <int kIndex>
  static HWY_INLINE auto get(const uint8_t* p) {
    return hn::Min(Native<uint8_t>::get<kIndex>(p), hn::Set(kTag, uint8_t{1}));
  }
};

struct And {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::And(a, b);
  }
};
struct Or {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Or(a, b);
  }
};
struct Xor {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Xor(a, b);
  }
};

constexpr Reduction kBooleanRow[kReduceOps] = {
    without_scale<Boolean, Or>(),   // sum
    {},                             // avg
    without_scale<Boolean, And>(),  // product
    without_scale<Boolean, And>(),  // min
    without_scale<Boolean, Or>(),   // max
    without_scale<Boolean, And>(),  // band
    without_scale<Boolean, Or>(),   // bor
    without_scale<Boolean, Xor>(),  // bxor
    {},                             // premul_sum
};

Reduction boolean_kernels(ReduceOp op) { return kBooleanRow[static_cast<size_t>(op)]; }

}  // namespace HWY_NAMESPACE
}  // namespace hccl_like
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hccl_like {
HWY_EXPORT(boolean_kernels);
Reduction families::boolean(DataType, ReduceOp op) noexcept {
  return HWY_DYNAMIC_DISPATCH(boolean_kernels)(op);
}
}  // namespace hccl_like
#endif
