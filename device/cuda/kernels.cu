// The kernels' entry points: reduce_NAME and small_NAME for each element type.
#include "device/cuda/small_calls.h"

#define HCCL_LIKE_CUDA_KERNEL(name, T, W)                                                        \
  extern "C" __global__ void reduce_##name(void* out, Sources in, unsigned sources,              \
                                           uint64_t count, int op, double scale,                 \
                                           double result_scale) {                                \
    using namespace hccl_like::cuda;                                                             \
    reduce_part<T, W>(out, in, sources, count, op, scale, result_scale,                          \
                      uint64_t{blockIdx.x} * blockDim.x + threadIdx.x,                           \
                      uint64_t{gridDim.x} * blockDim.x);                                         \
  }                                                                                              \
  extern "C" __global__ void small_##name(void* out, const void* in, uint64_t count, int op,     \
                                          double scale, double result_scale, SmallRanks ranks) { \
    using namespace hccl_like::cuda;                                                             \
    small_part<T, W>(out, in, count, op, scale, result_scale, ranks, blockIdx.x, gridDim.x,      \
                     threadIdx.x, blockDim.x);                                                   \
  }
HCCL_LIKE_CUDA_KERNELS(HCCL_LIKE_CUDA_KERNEL)
