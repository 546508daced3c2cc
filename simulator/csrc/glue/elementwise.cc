// Reductions of two ranges of elements, as the device's kernels do them: torch's types, and torch's
// rounding.
#include <c10/util/BFloat16.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Half.h>

#include <cmath>
#include <complex>
#include <type_traits>

#include "runtime/plugin_entry.h"

namespace torch_sim {
namespace {

template <typename T>
inline constexpr bool kIsComplex =
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

// Type of the arithmetic: narrow floats are widened, and rounded once.
template <typename T>
using Wide = std::conditional_t<std::is_arithmetic_v<T> || kIsComplex<T>, T, float>;

template <typename T, typename Op>
Stream::Work each(void* inout, const void* in, uint64_t count, Op op) {
  return [=] {
    auto* to = static_cast<T*>(inout);
    auto* from = static_cast<const T*>(in);
    for (uint64_t i = 0; i < count; ++i)
      to[i] = static_cast<T>(op(static_cast<Wide<T>>(to[i]), static_cast<Wide<T>>(from[i])));
  };
}

template <typename T>
T lesser(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return std::isnan(a) || a < b ? a : b;
  else
    return a < b ? a : b;
}
template <typename T>
T greater(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return std::isnan(a) || a > b ? a : b;
  else
    return a > b ? a : b;
}

template <typename T>
Stream::Work work_for(void* inout, const void* in, uint64_t count, hcd_op op) {
  using W = Wide<T>;
  if constexpr (std::is_same_v<T, bool>) {
    if (op == HCD_SUM) return each<T>(inout, in, count, [](bool a, bool b) { return a || b; });
    if (op == HCD_PRODUCT) return each<T>(inout, in, count, [](bool a, bool b) { return a && b; });
  } else {
    if (op == HCD_SUM) return each<T>(inout, in, count, [](W a, W b) -> W { return a + b; });
    if (op == HCD_PRODUCT) return each<T>(inout, in, count, [](W a, W b) -> W { return a * b; });
  }
  if constexpr (!kIsComplex<T>) {
    if (op == HCD_MIN) return each<T>(inout, in, count, lesser<W>);
    if (op == HCD_MAX) return each<T>(inout, in, count, greater<W>);
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == HCD_BIT_AND) return each<T>(inout, in, count, [](W a, W b) -> W { return a & b; });
    if (op == HCD_BIT_OR) return each<T>(inout, in, count, [](W a, W b) -> W { return a | b; });
    if (op == HCD_BIT_XOR) return each<T>(inout, in, count, [](W a, W b) -> W { return a ^ b; });
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

Stream::Work reduction(void* inout, const void* in, uint64_t count, hcd_type type, hcd_op op) {
  return with_type(type,
                   [&](auto element) { return work_for<decltype(element)>(inout, in, count, op); });
}

}  // namespace torch_sim
