#pragma once
// The kernels of reduce.h, and copies, on several threads at once. The results are the same bits:
// every element is worked out by one thread, as the kernel alone would.
#include <cstddef>
#include <span>

#include "core/machine/thread_pool.h"
#include "device/reduce/reduce.h"

namespace hccl_like {

// How a pass is divided: `threads` as ThreadPool::threads() gives them for its bytes; with 1 the
// kernel is called once, here.
struct Division {
  ThreadPool& thread_pool;
  size_t threads;
};

// As the kernels; `element_bytes` is their type's size.
void parallel_combine(Division division, Combine kernel, std::byte* dst, const std::byte* a,
                      const std::byte* b, size_t elements, size_t element_bytes);
void parallel_combine_many(Division division, CombineMany kernel, std::byte* dst,
                           std::span<const std::byte* const> sources, size_t elements,
                           size_t element_bytes);
// As memcpy.
void parallel_copy(Division division, std::byte* dst, const std::byte* src, size_t bytes);

}  // namespace hccl_like
