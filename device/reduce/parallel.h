#pragma once
// Multi-threaded reduction kernels and copies. Bitwise equal to one thread: the kernel computes
// each element the same way.
#include <cstddef>
#include <span>

#include "core/machine/thread_pool.h"
#include "device/reduce/reduce.h"

namespace hccl_like {

// `threads`: from ThreadPool::threads(); 1 calls the kernel once on this thread.
struct Division {
  ThreadPool& thread_pool;
  size_t threads;
};

// As the kernels; `element_bytes` is the size of their type.
void parallel_combine(Division division, Combine kernel, std::byte* dst, const std::byte* a,
                      const std::byte* b, size_t elements, size_t element_bytes);
void parallel_combine_many(Division division, CombineMany kernel, std::byte* dst,
                           std::span<const std::byte* const> sources, size_t elements,
                           size_t element_bytes);
// As memcpy.
void parallel_copy(Division division, std::byte* dst, const std::byte* src, size_t bytes);

}  // namespace hccl_like
