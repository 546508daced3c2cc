// Reductions of ranges of elements, as the device's kernels do them: torch's types, and torch's
// rounding.
#include <c10/util/BFloat16.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <type_traits>

#include "plugin/plugin_entry.h"

namespace torch_sim {
namespace {

template <typename T>
inline constexpr bool kIsComplex =
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

// Type of the arithmetic: narrow floats are widened, and rounded once.
template <typename T>
using Wide = std::conditional_t<std::is_arithmetic_v<T> || kIsComplex<T>, T, float>;

// Multiplies by a factor, which is 1 for all but sums of floats and complex numbers.
template <typename W>
W scaled(W value, double factor) {
  if constexpr (kIsComplex<W>)
    return value * static_cast<typename W::value_type>(factor);
  else if constexpr (std::is_floating_point_v<W>)
    return value * static_cast<W>(factor);
  else
    return value;
}

// Block by block, so that the sums of a block stay in the cache.
template <typename T, typename Op>
Stream::Work each(const Reduction& of, Op op) {
  return [of, op] {
    using W = Wide<T>;
    constexpr uint64_t kBlock = 1024;
    std::array<W, kBlock> sums;
    for (uint64_t begin = 0; begin < of.count; begin += kBlock) {
      const uint64_t size = std::min(kBlock, of.count - begin);
      const auto first = static_cast<const T*>(of.in.front()) + begin;
      for (uint64_t i = 0; i < size; ++i) sums[i] = scaled(static_cast<W>(first[i]), of.scale);
      for (size_t source = 1; source < of.in.size(); ++source) {
        const auto next = static_cast<const T*>(of.in[source]) + begin;
        for (uint64_t i = 0; i < size; ++i)
          sums[i] = op(sums[i], scaled(static_cast<W>(next[i]), of.scale));
      }
      const auto out = static_cast<T*>(of.out) + begin;
      for (uint64_t i = 0; i < size; ++i) out[i] = static_cast<T>(scaled(sums[i], of.result_scale));
    }
  };
}

// Not a number if either is.
template <typename T>
T lesser(T a, T b) {
  return (a < b) | (a != a) ? a : b;
}
template <typename T>
T greater(T a, T b) {
  return (a > b) | (a != a) ? a : b;
}

template <typename T>
Stream::Work work_for(const Reduction& of, hcd_op op) {
  using W = Wide<T>;
  if constexpr (std::is_same_v<T, bool>) {
    if (op == HCD_SUM) return each<T>(of, [](bool a, bool b) { return a || b; });
    if (op == HCD_PRODUCT) return each<T>(of, [](bool a, bool b) { return a && b; });
  } else {
    if (op == HCD_SUM) return each<T>(of, [](W a, W b) -> W { return a + b; });
    if (op == HCD_PRODUCT) return each<T>(of, [](W a, W b) -> W { return a * b; });
  }
  if constexpr (!kIsComplex<T>) {
    if (op == HCD_MIN) return each<T>(of, [](W a, W b) -> W { return lesser(a, b); });
    if (op == HCD_MAX) return each<T>(of, [](W a, W b) -> W { return greater(a, b); });
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == HCD_BIT_AND) return each<T>(of, [](W a, W b) -> W { return a & b; });
    if (op == HCD_BIT_OR) return each<T>(of, [](W a, W b) -> W { return a | b; });
    if (op == HCD_BIT_XOR) return each<T>(of, [](W a, W b) -> W { return a ^ b; });
  }
  throw NotSupported("sim: this operation is not defined for elements of this type");
}

// Calls fn(T()) with the C++ type.
template <typename Fn>
auto with_type(hcd_type type, Fn fn) {
  switch (type) {
    case HCD_FLOAT32:
      return fn(float());
    case HCD_FLOAT64:
      return fn(double());
    case HCD_FLOAT16:
      return fn(c10::Half());
    case HCD_BFLOAT16:
      return fn(c10::BFloat16());
    case HCD_FLOAT8_E4M3FN:
      return fn(c10::Float8_e4m3fn());
    case HCD_FLOAT8_E5M2:
      return fn(c10::Float8_e5m2());
    case HCD_INT8:
      return fn(int8_t());
    case HCD_INT16:
      return fn(int16_t());
    case HCD_INT32:
      return fn(int32_t());
    case HCD_INT64:
      return fn(int64_t());
    case HCD_UINT8:
      return fn(uint8_t());
    case HCD_UINT16:
      return fn(uint16_t());
    case HCD_UINT32:
      return fn(uint32_t());
    case HCD_UINT64:
      return fn(uint64_t());
    case HCD_BOOL:
      return fn(bool());
    case HCD_COMPLEX64:
      return fn(std::complex<float>());
    case HCD_COMPLEX128:
      return fn(std::complex<double>());
  }
  throw NotSupported("sim: there is no such type of elements");
}

}  // namespace

size_t bytes_of(hcd_type type) {
  return with_type(type, [](auto element) { return sizeof element; });
}

Stream::Work reduction(const Reduction& of, hcd_type type, hcd_op op) {
  return with_type(type, [&](auto element) { return work_for<decltype(element)>(of, op); });
}

}  // namespace torch_sim
