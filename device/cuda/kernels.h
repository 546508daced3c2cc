#pragma once
// The kernels of the plugin. nvcc compiles them for the device, g++ compiles them for tests.
//
// out[i] = (in[0][i] * scale op in[1][i] * scale op ...) * result_scale; `op` is an hcd_op that the
// type has. An all-reduction of little data does so with arrays of all ranks (small_calls.h).
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "device/cuda/kernel_arguments.h"
#include "device/plugin.h"

namespace hccl_like::cuda {

// Aligned as its parts are, as complex numbers of torch.
template <class R>
struct Complex {
  R x, y;
  friend __device__ Complex operator+(Complex a, Complex b) { return {a.x + b.x, a.y + b.y}; }
  friend __device__ Complex operator*(Complex a, Complex b) {
    return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
  }
  friend __device__ Complex operator*(Complex a, R factor) { return {a.x * factor, a.y * factor}; }
};

// X(name, T, W) for each hcd_type, in its order: arrays of T, whose elements are combined as W.
#define HCCL_LIKE_CUDA_KERNELS(X)              \
  X(float32, float, float)                     \
  X(float64, double, double)                   \
  X(float16, __half, float)                    \
  X(bfloat16, __nv_bfloat16, float)            \
  X(float8_e4m3fn, __nv_fp8_e4m3, float)       \
  X(float8_e5m2, __nv_fp8_e5m2, float)         \
  X(int8, int8_t, int8_t)                      \
  X(int16, int16_t, int16_t)                   \
  X(int32, int32_t, int32_t)                   \
  X(int64, int64_t, int64_t)                   \
  X(uint8, uint8_t, uint8_t)                   \
  X(uint16, uint16_t, uint16_t)                \
  X(uint32, uint32_t, uint32_t)                \
  X(uint64, uint64_t, uint64_t)                \
  X(bool, bool, bool)                          \
  X(complex64, Complex<float>, Complex<float>) \
  X(complex128, Complex<double>, Complex<double>)

// Integers wrap around. On bool, sum is logical or, and product is logical and.
template <class W>
__device__ W sum(W a, W b) {
  if constexpr (std::is_integral_v<W>)
    return static_cast<W>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}
template <class W>
__device__ W product(W a, W b) {
  if constexpr (std::is_integral_v<W>)
    return static_cast<W>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return a * b;
}

// Propagates NaN. -0 is less than 0, so that the order of the ranks does not change a bit.
template <class W>
__device__ W least(W a, W b) {
  if constexpr (std::is_floating_point_v<W>) {
    using std::signbit;
    if (a != a || b != b) return a + b;
    if (a == b) return signbit(a) ? a : b;
  }
  return a < b ? a : b;
}
template <class W>
__device__ W greatest(W a, W b) {
  if constexpr (std::is_floating_point_v<W>) {
    using std::signbit;
    if (a != a || b != b) return a + b;
    if (a == b) return signbit(a) ? b : a;
  }
  return a > b ? a : b;
}

// a[i] = a[i] op b[i]
template <class W, unsigned N>
__device__ void combine(W (&a)[N], const W (&b)[N], int op) {
  const auto each = [&](auto f) {
    for (unsigned i = 0; i < N; ++i) a[i] = f(a[i], b[i]);
  };
  if (op == HCD_SUM) return each([](W x, W y) { return sum(x, y); });
  if (op == HCD_PRODUCT) return each([](W x, W y) { return product(x, y); });
  if constexpr (std::is_arithmetic_v<W>) {
    if (op == HCD_MIN) return each([](W x, W y) { return least(x, y); });
    if (op == HCD_MAX) return each([](W x, W y) { return greatest(x, y); });
  }
  if constexpr (std::is_integral_v<W>) {
    if (op == HCD_BIT_AND) return each([](W x, W y) { return static_cast<W>(x & y); });
    if (op == HCD_BIT_OR) return each([](W x, W y) { return static_cast<W>(x | y); });
    if (op == HCD_BIT_XOR) return each([](W x, W y) { return static_cast<W>(x ^ y); });
  }
}

// Integers have no factors.
template <class W>
__device__ W scaled(W value, double factor) {
  if constexpr (std::is_floating_point_v<W>)
    return value * static_cast<W>(factor);
  else if constexpr (std::is_class_v<W>)
    return value * static_cast<decltype(value.x)>(factor);
  else
    return value;
}

// Rounds to nearest even. float8_e5m2 overflows to infinity, float8_e4m3fn has none.
template <class T, class W>
__device__ T rounded(W value) {
  if constexpr (std::is_same_v<T, __nv_fp8_e5m2>) {
    T result;
    result.__x = __nv_cvt_float_to_fp8(value, __NV_NOSAT, __NV_E5M2);
    return result;
  } else {
    return static_cast<T>(value);
  }
}

// Reads and writes N elements by one access of type Access.
template <class Access, class T, class W, unsigned N>
__device__ void load(const T* from, double scale, W (&to)[N]) {
  const Access bits = *reinterpret_cast<const Access*>(from);
  T elements[N];
  memcpy(static_cast<void*>(elements), &bits, sizeof bits);
  for (unsigned i = 0; i < N; ++i) to[i] = scaled(static_cast<W>(elements[i]), scale);
}
template <class Access, class T, class W, unsigned N>
__device__ void store(T* to, double scale, const W (&from)[N]) {
  T elements[N];
  for (unsigned i = 0; i < N; ++i) elements[i] = rounded<T>(scaled(from[i], scale));
  Access bits;
  memcpy(static_cast<void*>(&bits), elements, sizeof bits);
  *reinterpret_cast<Access*>(to) = bits;
}

__device__ inline const void* source(const Sources& in, unsigned k) { return in.at[k]; }

// `in` is whatever has source(in, k).
template <class Access, class T, class W, class In>
__device__ void reduce_at(uint64_t at, T* out, const In& in, unsigned sources, int op, double scale,
                          double result_scale) {
  W result[sizeof(Access) / sizeof(T)], next[sizeof(Access) / sizeof(T)];
  load<Access>(static_cast<const T*>(source(in, 0)) + at, scale, result);
  for (unsigned k = 1; k < sources; ++k) {
    load<Access>(static_cast<const T*>(source(in, k)) + at, scale, next);
    combine(result, next, op);
  }
  store<Access>(out + at, result_scale, result);
}

// How many elements precede the first address that is a multiple of 16 bytes in all arrays; `count`
// if there is none.
template <class T, class In>
__device__ uint64_t elements_before_packs(const T* out, const In& in, unsigned sources,
                                          uint64_t count) {
  const auto offset = [](const void* at) {
    return reinterpret_cast<uintptr_t>(at) % sizeof(uint4);
  };
  const auto common = offset(out);
  if (common % sizeof(T) != 0) return count;
  for (unsigned k = 0; k < sources; ++k)
    if (offset(source(in, k)) != common) return count;
  const uint64_t before = (sizeof(uint4) - common) % sizeof(uint4) / sizeof(T);
  return before < count ? before : count;
}

// The part of one of `threads` threads. Packs of 16 bytes come first, then the elements before and
// after them. `out` may be one of the sources.
template <class T, class W, class In>
__device__ void reduce_part(void* out_array, const In& in, unsigned sources, uint64_t count, int op,
                            double scale, double result_scale, uint64_t thread, uint64_t threads) {
  constexpr uint64_t kPack = sizeof(uint4) / sizeof(T);
  auto* const out = static_cast<T*>(out_array);
  const uint64_t before = elements_before_packs(out, in, sources, count);
  const uint64_t packs = (count - before) / kPack, others = count - packs * kPack;
  for (uint64_t i = thread; i < packs + others; i += threads) {
    if (i < packs) {
      reduce_at<uint4, T, W>(before + i * kPack, out, in, sources, op, scale, result_scale);
    } else {
      const uint64_t at = i - packs < before ? i - packs : i - packs + packs * kPack;
      reduce_at<T, T, W>(at, out, in, sources, op, scale, result_scale);
    }
  }
}

}  // namespace hccl_like::cuda
