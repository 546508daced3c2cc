// out[i] = (in[0][i] * scale op in[1][i] * scale op ...) * result_scale: one kernel for each
// element type; `op` is an hcd_op that the type has.
#include <cuComplex.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "device/cuda/kernel_arguments.h"
#include "device/plugin.h"

// W is the type of the arithmetic.
template <class W>
struct Combine {
  static __device__ W combine(W a, W b, int op) {
    switch (op) {
      case HCD_SUM:
        return a + b;
      case HCD_PRODUCT:
        return a * b;
      case HCD_MIN:
        return a != a || a < b ? a : b;  // propagates NaN
      case HCD_MAX:
        return a != a || a > b ? a : b;
      default:
        return bits(a, b, op);
    }
  }
  static __device__ W bits(W a, W b, int op) {
    return op == HCD_BIT_AND ? a & b : op == HCD_BIT_OR ? a | b : a ^ b;
  }
};
template <>
inline __device__ float Combine<float>::bits(float a, float, int) {
  return a;
}
template <>
inline __device__ double Combine<double>::bits(double a, double, int) {
  return a;
}
template <>
struct Combine<bool> {
  static __device__ bool combine(bool a, bool b, int op) { return op == HCD_SUM ? a || b : a && b; }
};
template <>
struct Combine<cuFloatComplex> {
  static __device__ cuFloatComplex combine(cuFloatComplex a, cuFloatComplex b, int op) {
    return op == HCD_SUM ? cuCaddf(a, b) : cuCmulf(a, b);
  }
};
template <>
struct Combine<cuDoubleComplex> {
  static __device__ cuDoubleComplex combine(cuDoubleComplex a, cuDoubleComplex b, int op) {
    return op == HCD_SUM ? cuCadd(a, b) : cuCmul(a, b);
  }
};

template <class W>
inline __device__ W scaled(W value, double factor) {
  return factor == 1 ? value : static_cast<W>(value * static_cast<W>(factor));
}
inline __device__ cuFloatComplex scaled(cuFloatComplex value, double factor) {
  const auto f = static_cast<float>(factor);
  return factor == 1 ? value : make_cuFloatComplex(value.x * f, value.y * f);
}
inline __device__ cuDoubleComplex scaled(cuDoubleComplex value, double factor) {
  return factor == 1 ? value : make_cuDoubleComplex(value.x * factor, value.y * factor);
}

#define REDUCE(name, T, W)                                                                       \
  extern "C" __global__ void reduce_##name(T* out, Sources in, unsigned sources, uint64_t count, \
                                           int op, double scale, double result_scale) {          \
    const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;                                    \
    for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) { \
      const auto source = [&](unsigned k) {                                                      \
        return scaled(static_cast<W>(static_cast<const T*>(in.at[k])[i]), scale);                \
      };                                                                                         \
      W sum = source(0);                                                                         \
      for (unsigned k = 1; k < sources; ++k) sum = Combine<W>::combine(sum, source(k), op);      \
      out[i] = static_cast<T>(scaled(sum, result_scale));                                        \
    }                                                                                            \
  }

REDUCE(float32, float, float)
REDUCE(float64, double, double)
REDUCE(float16, __half, float)
REDUCE(bfloat16, __nv_bfloat16, float)
REDUCE(float8_e4m3fn, __nv_fp8_e4m3, float)
REDUCE(float8_e5m2, __nv_fp8_e5m2, float)
REDUCE(int8, int8_t, int8_t)
REDUCE(int16, int16_t, int16_t)
REDUCE(int32, int32_t, int32_t)
REDUCE(int64, int64_t, int64_t)
REDUCE(uint8, uint8_t, uint8_t)
REDUCE(uint16, uint16_t, uint16_t)
REDUCE(uint32, uint32_t, uint32_t)
REDUCE(uint64, uint64_t, uint64_t)
REDUCE(bool, bool, bool)
REDUCE(complex64, cuFloatComplex, cuFloatComplex)
REDUCE(complex128, cuDoubleComplex, cuDoubleComplex)
