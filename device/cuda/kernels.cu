// The kernels' entry points: reduce_NAME for each element type.
#include "device/cuda/kernels.h"

#define HCCL_LIKE_CUDA_KERNEL(name, T, W)                                           \
  extern "C" __global__ void reduce_##name(void* out, Sources in, unsigned sources, \
                                           uint64_t count, int op, double scale,    \
                                           double result_scale) {                   \
    using namespace hccl_like::cuda;                                                \
    reduce_part<T, W>(out, in, sources, count, op, scale, result_scale,             \
                      uint64_t{blockIdx.x} * blockDim.x + threadIdx.x,              \
                      uint64_t{gridDim.x} * blockDim.x);                            \
  }
HCCL_LIKE_CUDA_KERNELS(HCCL_LIKE_CUDA_KERNEL)
