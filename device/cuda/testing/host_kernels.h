#pragma once
// The kernels compiled for the host, by name.
#include <algorithm>

#include "device/cuda/small_calls.h"

namespace hccl_like::cuda {

struct HostKernel {
  const char* name;
  void (*part)(void* out, const Sources& in, unsigned sources, uint64_t count, int op, double scale,
               double result_scale, uint64_t thread, uint64_t threads);

  // Runs all threads, one after the other. Those from `count` on have nothing to do.
  void run(void* out, const Sources& in, unsigned sources, uint64_t count, int op, double scale,
           double result_scale, uint64_t threads) const {
    for (uint64_t thread = 0; thread < std::min(threads, count); ++thread)
      part(out, in, sources, count, op, scale, result_scale, thread, threads);
  }
};

#define HCCL_LIKE_CUDA_HOST_KERNEL(name, T, W) {"reduce_" #name, reduce_part<T, W>},
inline constexpr HostKernel kHostKernels[] = {HCCL_LIKE_CUDA_KERNELS(HCCL_LIKE_CUDA_HOST_KERNEL)};
#undef HCCL_LIKE_CUDA_HOST_KERNEL

// A block is one thread.
struct HostSmallKernel {
  const char* name;
  void (*part)(void* out, const void* in, uint64_t count, int op, double scale, double result_scale,
               const SmallRanks& ranks, unsigned block, unsigned blocks, unsigned thread,
               unsigned threads);
};

#define HCCL_LIKE_CUDA_HOST_KERNEL(name, T, W) {"small_" #name, small_part<T, W>},
inline constexpr HostSmallKernel kHostSmallKernels[] = {
    HCCL_LIKE_CUDA_KERNELS(HCCL_LIKE_CUDA_HOST_KERNEL)};
#undef HCCL_LIKE_CUDA_HOST_KERNEL

}  // namespace hccl_like::cuda
