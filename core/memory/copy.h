#pragma once
// Copies of large buffers.
#include <cstddef>

namespace hccl_like {

// memcpy that interleaves two pages from 16 KiB on, for more cache lines in flight. For memory that
// another core reads and this core rewrites, if both share a cache. `all`: total bytes of a copy
// done in consecutive parts; above 256 KiB falls back to memcpy, which is as fast.
void copy_in_pairs(std::byte* to, const std::byte* from, size_t bytes, size_t all);

// The same for data that another core wrote through its caches. From 128 KiB on interleaves four
// pages if the L1 cache has enough ways. For data written past the caches, memcpy is faster.
void copy_between_cores(std::byte* to, const std::byte* from, size_t bytes, size_t all);

// memcpy with non-temporal stores: does not read the destination. Slower by a factor if the data
// would fit the cache. Use if both ends' buffers together exceed the last-level cache.
void copy_past_caches(std::byte* to, const std::byte* from, size_t bytes);

// Size of the last-level cache; a guess if unknown.
size_t last_cache_bytes();
// For tests: the size from now on, so that what goes past a cache need not be larger than the
// machine's. Not while any other thread uses this library.
void set_last_cache_bytes(size_t bytes);

}  // namespace hccl_like
