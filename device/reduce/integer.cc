// Integers of 8 to 64 bits. Sums and products wrap around.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/reduce/integer.cc"
#include <hwy/foreach_target.h>
// Highway's order: foreach_target.h first.
#include <algorithm>
#include <type_traits>

#include "device/reduce/families.h"
#include "device/reduce/kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hccl_like {
namespace HWY_NAMESPACE {

struct IntegerSum {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Add(a, b);
  }
};

struct IntegerProduct {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    if constexpr (sizeof(hn::TFromV<V>) == 1) {
      return product_of_bytes(a, b);
    } else {
      return hn::Mul(a, b);
    }
  }

 private:
  // There is no SIMD byte multiply. In a 16-bit lane, the low byte of a product depends only on the
  // low bytes. The high bytes are multiplied separately; one operand stays in place, and so does
  // the product.
  template <class V>
  static HWY_INLINE V product_of_bytes(V a, V b) {
    const hn::DFromV<V> d8;
#if HWY_TARGET == HWY_SCALAR
    return hn::Set(d8, static_cast<hn::TFromV<V>>(hn::GetLane(a) * hn::GetLane(b)));
#else
    const hn::Repartition<uint16_t, decltype(d8)> d16;
    const auto a16 = hn::BitCast(d16, a), b16 = hn::BitCast(d16, b);
    const auto low_byte = hn::Set(d16, uint16_t{0x00ff});
    const auto low = hn::And(hn::Mul(a16, b16), low_byte);
    const auto high = hn::Mul(hn::ShiftRight<8>(a16), hn::AndNot(low_byte, b16));
    return hn::BitCast(d8, hn::Or(low, high));
#endif
  }
};

struct IntegerMin {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Min(a, b);
  }
};
struct IntegerMax {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Max(a, b);
  }
};
struct BitAnd {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::And(a, b);
  }
};
struct BitOr {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Or(a, b);
  }
};
struct BitXor {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Xor(a, b);
  }
};

// Truncates towards zero. Doubles hold 32-bit integers and quotients precisely enough and allow
// SIMD. 64-bit integers need scalar division.
template <typename T>
void divide(std::byte* data, size_t elements, double divisor) {
  for (size_t i = 0; i < elements; ++i) {
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    if constexpr (sizeof(T) == 8) {
      value /= static_cast<T>(divisor);
    } else {
      value = static_cast<T>(static_cast<double>(value) / divisor);
    }
    std::memcpy(data + i * sizeof(T), &value, sizeof(T));
  }
}

// Divides the sum while it is in the L1 cache.
template <typename T>
void average(std::byte* dst, std::byte* also, std::span<const std::byte* const> sources,
             size_t elements, Scaling scaling) noexcept {
  constexpr size_t kPart = (8 << 10) / sizeof(T);
  for (size_t first = 0; first < elements; first += kPart) {
    const size_t last = std::min(elements, first + kPart);
    combine_range<Native<std::make_unsigned_t<T>>, IntegerSum>(dst, nullptr, sources, first, last);
    std::byte* const part = dst + first * sizeof(T);
    divide<T>(part, last - first, scaling.result);
    if (also != nullptr) std::memcpy(also + first * sizeof(T), part, (last - first) * sizeof(T));
  }
}

// Types share kernels: sign-independent operations use unsigned lanes, bit operations use bytes.
template <typename T>
struct IntegerRow {
  using Ordered = Native<T>;
  using Wrapping = Native<std::make_unsigned_t<T>>;
  using Bytes = Native<uint8_t, sizeof(T)>;
  static constexpr Reduction kRow[kReduceOps] = {
      without_scale<Wrapping, IntegerSum>(),  // sum
      {combine<Wrapping, IntegerSum>, combine_twice<Wrapping, IntegerSum>,
       combine_many<Wrapping, IntegerSum>, average<T>},  // avg
      without_scale<Wrapping, IntegerProduct>(),         // product
      without_scale<Ordered, IntegerMin>(),              // min
      without_scale<Ordered, IntegerMax>(),              // max
      without_scale<Bytes, BitAnd>(),                    // band
      without_scale<Bytes, BitOr>(),                     // bor
      without_scale<Bytes, BitXor>(),                    // bxor
      {},                                                // premul_sum
  };
};

// By DataType from kInt8 on.
constexpr const Reduction* kIntegerRows[] = {
    IntegerRow<int8_t>::kRow,   IntegerRow<int16_t>::kRow,  IntegerRow<int32_t>::kRow,
    IntegerRow<int64_t>::kRow,  IntegerRow<uint8_t>::kRow,  IntegerRow<uint16_t>::kRow,
    IntegerRow<uint32_t>::kRow, IntegerRow<uint64_t>::kRow,
};

Reduction integer_kernels(DataType type, ReduceOp op) {
  const size_t row = static_cast<size_t>(type) - static_cast<size_t>(DataType::kInt8);
  return kIntegerRows[row][static_cast<size_t>(op)];
}

}  // namespace HWY_NAMESPACE
}  // namespace hccl_like
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hccl_like {
HWY_EXPORT(integer_kernels);
Reduction families::integer(DataType type, ReduceOp op) noexcept {
  return HWY_DYNAMIC_DISPATCH(integer_kernels)(type, op);
}
}  // namespace hccl_like
#endif
