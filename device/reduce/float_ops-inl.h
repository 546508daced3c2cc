// Operations on registers of float32 or float64, compiled once per instruction set.
#if defined(HCCL_LIKE_DEVICE_REDUCE_FLOAT_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HCCL_LIKE_DEVICE_REDUCE_FLOAT_OPS_INL_H_
#undef HCCL_LIKE_DEVICE_REDUCE_FLOAT_OPS_INL_H_
#else
#define HCCL_LIKE_DEVICE_REDUCE_FLOAT_OPS_INL_H_
#endif

#include <hwy/highway.h>

#include <limits>

#include "device/reduce/kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hccl_like {
namespace HWY_NAMESPACE {

struct Sum {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Add(a, b);
  }
};

struct Product {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Mul(a, b);
  }
};

// Propagates NaN, always the same NaN, so that the order of operands has no effect.
template <class V>
HWY_INLINE V spread_nan(V a, V b, V result) {
  const hn::DFromV<V> d;
  const auto nan = hn::Set(d, std::numeric_limits<hn::TFromD<decltype(d)>>::quiet_NaN());
  return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::IsNaN(b)), nan, result);
}

// min(0, -0) is -0 and max(0, -0) is 0 in any order (hardware min/max return the second operand):
// ranks that combine in different orders must get the same bits. Other equal numbers have equal
// bits, so the bitwise or (and) of equals changes nothing.
struct Min {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    const V smaller = hn::IfThenElse(hn::Lt(a, b), a, b);
    return spread_nan(a, b, hn::Or(smaller, hn::IfThenElseZero(hn::Eq(a, b), a)));
  }
};

struct Max {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    const V larger = hn::IfThenElse(hn::Lt(a, b), b, a);
    return spread_nan(a, b, hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), larger));
  }
};

// The table row of a float type, by ReduceOp.
template <class Codec>
struct FloatRow {
  static constexpr Reduction kRow[kReduceOps] = {
      without_scale<Codec, Sum>(),      // sum
      with_scale<Codec, Sum>(),         // avg
      without_scale<Codec, Product>(),  // product
      without_scale<Codec, Min>(),      // min
      without_scale<Codec, Max>(),      // max
      {},                               // band
      {},                               // bor
      {},                               // bxor
      with_scale<Codec, Sum>(),         // premul_sum
  };
};

}  // namespace HWY_NAMESPACE
}  // namespace hccl_like
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
