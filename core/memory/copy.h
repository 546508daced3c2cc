#pragma once
// Copies of much memory.
#include <cstddef>

namespace hccl_like {

// As memcpy, through two pages side by side from 16 KiB on, so that more lines are on their way at
// once: for memory that another core reads and this one writes again. Where cores share a cache, 64
// KiB to 256 KiB from rank to rank, written and read like this, took 8 to 17 % less time. `all`:
// what is copied in parts, one after the other, altogether; of more than 256 KiB most comes from
// the last cache, and memcpy is as fast or faster.
void copy_in_pairs(std::byte* to, const std::byte* from, size_t bytes, size_t all);

// The same for what another core has written through its caches. From 128 KiB on through four
// pages, where the first cache is made for that: 256 KiB took a quarter less time than memcpy, 1
// MiB an eighth, 8 MiB the same. What was written past the caches memcpy reads faster.
void copy_between_cores(std::byte* to, const std::byte* from, size_t bytes, size_t all);

// As memcpy, but writes past the caches, and so does not read what it overwrites. Slower by a
// factor where the data would have stayed in a cache: for what both ends of a message touch being
// larger than the last one.
void copy_past_caches(std::byte* to, const std::byte* from, size_t bytes);

// Bytes of the last cache; a guess where the system does not tell.
size_t last_cache_bytes();

}  // namespace hccl_like
