#pragma once
// Reference reductions for tests: load one element into a Value, combine, store.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/base/types.h"

namespace hccl_like::reduce_reference {

template <typename T>
T integer_op(ReduceOp op, T a, T b) {
  using U = std::make_unsigned_t<T>;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    case ReduceOp::kProduct:
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kBitAnd:
      return static_cast<T>(static_cast<U>(a) & static_cast<U>(b));
    case ReduceOp::kBitOr:
      return static_cast<T>(static_cast<U>(a) | static_cast<U>(b));
    default:
      return static_cast<T>(static_cast<U>(a) ^ static_cast<U>(b));
  }
}

template <typename T>
T float_op(ReduceOp op, T a, T b) {
  const bool is_min = op == ReduceOp::kMin, is_max = op == ReduceOp::kMax;
  if (op == ReduceOp::kProduct) return a * b;
  if (!is_min && !is_max) return a + b;
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (a == b) return std::signbit(a) == is_min ? a : b;
  return (a < b) == is_min ? a : b;
}

template <typename T>
T load_as(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}
template <typename T>
void store_as(std::byte* p, T value) {
  std::memcpy(p, &value, sizeof(T));
}

template <typename T>
struct Integer {
  using Value = T;
  static Value load(const std::byte* p) { return load_as<T>(p); }
  static void store(std::byte* p, Value v) { store_as(p, v); }
  static Value apply(ReduceOp op, Value a, Value b) { return integer_op(op, a, b); }
  static Value scale(Value v, double divisor) {
    return static_cast<T>(v / static_cast<T>(divisor));
  }
};

struct Boolean {
  using Value = bool;
  static Value load(const std::byte* p) { return *p != std::byte{0}; }
  static void store(std::byte* p, Value v) { *p = std::byte{v}; }
  static Value apply(ReduceOp op, Value a, Value b) {
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kMax:
      case ReduceOp::kBitOr:
        return a || b;
      case ReduceOp::kBitXor:
        return a != b;
      default:
        return a && b;
    }
  }
  static Value scale(Value v, double) { return v; }
};

template <typename T>
struct Float {
  using Value = T;
  static Value load(const std::byte* p) { return load_as<T>(p); }
  static void store(std::byte* p, Value v) { store_as(p, v); }
  static Value apply(ReduceOp op, Value a, Value b) { return float_op(op, a, b); }
  static Value scale(Value v, double factor) { return v * static_cast<T>(factor); }
};

template <typename T>
struct Complex {
  using Value = std::complex<T>;
  static Value load(const std::byte* p) { return {load_as<T>(p), load_as<T>(p + sizeof(T))}; }
  static void store(std::byte* p, Value v) {
    store_as(p, v.real());
    store_as(p + sizeof(T), v.imag());
  }
  static Value apply(ReduceOp op, Value a, Value b) {
    if (op != ReduceOp::kProduct) return {a.real() + b.real(), a.imag() + b.imag()};
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  }
  static Value scale(Value v, double factor) {
    return {v.real() * static_cast<T>(factor), v.imag() * static_cast<T>(factor)};
  }
};

// Reference codec for a float of kExponent and kMantissa bits: values through ldexp, rounding by
// search among all values.
template <typename Bits, int kExponent, int kMantissa, bool kHasInfinity>
struct Narrow {
  using Value = float;
  static constexpr uint32_t kSign = 1u << (kExponent + kMantissa);
  static constexpr uint32_t kAllOnes = ((1u << kExponent) - 1) << kMantissa;
  static constexpr uint32_t kFirstSpecial = kHasInfinity ? kAllOnes : kSign - 1;
  static constexpr uint32_t kNan = kSign - 1;
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;

  static float magnitude(uint32_t pattern) {
    const int exponent = static_cast<int>(pattern >> kMantissa);
    const int mantissa = static_cast<int>(pattern & ((1u << kMantissa) - 1));
    return exponent == 0 ? std::ldexp(static_cast<float>(mantissa), 1 - kBias - kMantissa)
                         : std::ldexp(static_cast<float>(mantissa + (1 << kMantissa)),
                                      exponent - kBias - kMantissa);
  }
  static const std::vector<float>& magnitudes() {
    static const std::vector<float> all = [] {
      std::vector<float> values;
      for (uint32_t pattern = 0; pattern < kFirstSpecial; ++pattern)
        values.push_back(magnitude(pattern));
      return values;
    }();
    return all;
  }

  static Value load(const std::byte* p) {
    const uint32_t bits = load_as<Bits>(p);
    const uint32_t pattern = bits & (kSign - 1);
    float value = std::numeric_limits<float>::quiet_NaN();
    if (pattern < kFirstSpecial) value = magnitudes()[pattern];
    if (kHasInfinity && pattern == kFirstSpecial) value = std::numeric_limits<float>::infinity();
    return (bits & kSign) != 0 ? -value : value;
  }
  static uint32_t nearest(double value) {
    const std::vector<float>& all = magnitudes();
    const auto above =
        static_cast<uint32_t>(std::lower_bound(all.begin(), all.end(), value) - all.begin());
    if (above == 0) return 0;
    // The successor of the largest value, with a larger exponent range.
    const double upper = above < all.size() ? double{all[above]}
                                            : 2 * double{all[above - 1]} - double{all[above - 2]};
    const double lower = all[above - 1];
    const double to_lower = value - lower, to_upper = upper - value;
    const bool take_lower = to_lower < to_upper || (to_lower == to_upper && (above - 1) % 2 == 0);
    if (above == all.size() && !kHasInfinity) return above - 1;
    return take_lower ? above - 1 : above;
  }
  static void store(std::byte* p, Value v) {
    const uint32_t pattern = std::isnan(v) ? kNan : nearest(std::fabs(v));
    store_as(p, static_cast<Bits>(pattern | (std::signbit(v) ? kSign : 0)));
  }
  static Value apply(ReduceOp op, Value a, Value b) { return float_op(op, a, b); }
  static Value scale(Value v, double factor) { return v * static_cast<float>(factor); }
};

using Float16 = Narrow<uint16_t, 5, 10, true>;
using BFloat16 = Narrow<uint16_t, 8, 7, true>;
using Float8E4M3FN = Narrow<uint8_t, 4, 3, false>;
using Float8E5M2 = Narrow<uint8_t, 5, 2, true>;

template <class Type>
void reference_many(ReduceOp op, std::byte* dst, const std::vector<const std::byte*>& sources,
                    size_t elements, size_t size) {
  for (size_t i = 0; i < elements; ++i) {
    auto value = Type::load(sources[0] + i * size);
    for (size_t s = 1; s < sources.size(); ++s)
      value = Type::apply(op, value, Type::load(sources[s] + i * size));
    Type::store(dst + i * size, value);
  }
}

template <class Type>
void reference_scaled(std::byte* dst, const std::vector<const std::byte*>& sources, size_t elements,
                      size_t size, double input, double result) {
  const auto operand = [&](size_t source, size_t i) {
    return Type::scale(Type::load(sources[source] + i * size), input);
  };
  for (size_t i = 0; i < elements; ++i) {
    auto value = operand(0, i);
    for (size_t s = 1; s < sources.size(); ++s)
      value = Type::apply(ReduceOp::kSum, value, operand(s, i));
    Type::store(dst + i * size, Type::scale(value, result));
  }
}

// All NaNs are equal.
template <class Type>
bool same(const std::byte* a, const std::byte* b, size_t size) {
  if (std::memcmp(a, b, size) == 0) return true;
  if constexpr (std::is_floating_point_v<typename Type::Value>) {
    return std::isnan(Type::load(a)) && std::isnan(Type::load(b));
  } else {
    return false;
  }
}
template <typename T>
bool same_complex(const std::byte* a, const std::byte* b) {
  return same<Float<T>>(a, b, sizeof(T)) && same<Float<T>>(a + sizeof(T), b + sizeof(T), sizeof(T));
}
template <>
inline bool same<Complex<float>>(const std::byte* a, const std::byte* b, size_t) {
  return same_complex<float>(a, b);
}
template <>
inline bool same<Complex<double>>(const std::byte* a, const std::byte* b, size_t) {
  return same_complex<double>(a, b);
}

struct Reference {
  void (*many)(ReduceOp, std::byte*, const std::vector<const std::byte*>&, size_t, size_t);
  void (*scaled)(std::byte*, const std::vector<const std::byte*>&, size_t, size_t, double, double);
  bool (*same)(const std::byte*, const std::byte*, size_t);
  size_t float_bytes;  // of a real part; 0 for integers
};

template <class Type>
constexpr Reference reference(size_t float_bytes) {
  return {reference_many<Type>, reference_scaled<Type>, same<Type>, float_bytes};
}

inline constexpr Reference kReferences[kDataTypes] = {
    reference<Float<float>>(4),      reference<Float<double>>(8),
    reference<Float16>(2),           reference<BFloat16>(2),
    reference<Float8E4M3FN>(1),      reference<Float8E5M2>(1),
    reference<Integer<int8_t>>(0),   reference<Integer<int16_t>>(0),
    reference<Integer<int32_t>>(0),  reference<Integer<int64_t>>(0),
    reference<Integer<uint8_t>>(0),  reference<Integer<uint16_t>>(0),
    reference<Integer<uint32_t>>(0), reference<Integer<uint64_t>>(0),
    reference<Boolean>(0),           reference<Complex<float>>(4),
    reference<Complex<double>>(8),
};

}  // namespace hccl_like::reduce_reference
