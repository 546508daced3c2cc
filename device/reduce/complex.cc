// complex64 and complex128, with interleaved real and imaginary parts.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/reduce/complex.cc"
#include <hwy/foreach_target.h>
// Highway's order: foreach_target.h first.
#include "device/reduce/families.h"
#include "device/reduce/float_ops-inl.h"
#include "device/reduce/kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hccl_like {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
// A scalar register holds half a number, so products work on whole numbers.
template <typename T>
HWY_INLINE void multiply(std::byte* dst, const std::byte* a, const std::byte* b) {
  T x[2], y[2];
  std::memcpy(x, a, sizeof(x));
  std::memcpy(y, b, sizeof(y));
  const T result[2] = {x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]};
  std::memcpy(dst, result, sizeof(result));
}

template <typename T>
void multiply_all(std::byte* dst, const std::byte* a, const std::byte* b,
                  size_t elements) noexcept {
  for (size_t i = 0; i < elements * 2 * sizeof(T); i += 2 * sizeof(T))
    multiply<T>(dst + i, a + i, b + i);
}

template <typename T>
void multiply_twice(std::byte* dst, std::byte* also, const std::byte* a, const std::byte* b,
                    size_t elements) noexcept {
  for (size_t i = 0; i < elements * 2 * sizeof(T); i += 2 * sizeof(T)) {
    std::byte product[2 * sizeof(T)];
    multiply<T>(product, a + i, b + i);
    std::memcpy(dst + i, product, sizeof(product));
    std::memcpy(also + i, product, sizeof(product));
  }
}

template <typename T>
void multiply_many(std::byte* dst, std::span<const std::byte* const> sources,
                   size_t elements) noexcept {
  for (size_t i = 0; i < elements * 2 * sizeof(T); i += 2 * sizeof(T)) {
    std::byte product[2 * sizeof(T)];
    std::memcpy(product, sources[0] + i, sizeof(product));
    for (const std::byte* source : sources.subspan(1)) multiply<T>(product, product, source + i);
    std::memcpy(dst + i, product, sizeof(product));
  }
}

template <typename T>
constexpr Reduction complex_product() {
  return {multiply_all<T>, multiply_twice<T>, multiply_many<T>};
}
#else
// (ar + i ai)(br + i bi): with duplicated parts of a and swapped parts of b, each part is one sum
// or difference. Compiled without FMA contraction: with FMA, a * b and b * a differ in the last
// bit.
struct ComplexProduct {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    const hn::DFromV<V> d;
    const V with_real = hn::Mul(hn::DupEven(a), b);                       // ar br, ar bi
    const V with_imaginary = hn::Mul(hn::DupOdd(a), hn::Reverse2(d, b));  // ai bi, ai br
    return hn::OddEven(hn::Add(with_real, with_imaginary), hn::Sub(with_real, with_imaginary));
  }
};

template <typename T>
constexpr Reduction complex_product() {
  return without_scale<Native<T, 2>, ComplexProduct>();
}
#endif

template <typename T>
struct ComplexRow {
  using Codec = Native<T, 2>;
  static constexpr Reduction kRow[kReduceOps] = {
      without_scale<Codec, Sum>(),  // sum
      with_scale<Codec, Sum>(),     // avg
      complex_product<T>(),         // product
      {},                           // min: complex numbers have no order
      {},                           // max
      {},                           // band
      {},                           // bor
      {},                           // bxor
      with_scale<Codec, Sum>(),     // premul_sum
  };
};

Reduction complex_kernels(DataType type, ReduceOp op) {
  const auto& row =
      type == DataType::kComplex64 ? ComplexRow<float>::kRow : ComplexRow<double>::kRow;
  return row[static_cast<size_t>(op)];
}

}  // namespace HWY_NAMESPACE
}  // namespace hccl_like
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hccl_like {
HWY_EXPORT(complex_kernels);
Reduction families::complex(DataType type, ReduceOp op) noexcept {
  return HWY_DYNAMIC_DISPATCH(complex_kernels)(type, op);
}
}  // namespace hccl_like
#endif
