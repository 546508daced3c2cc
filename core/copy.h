#pragma once
// Copies of so much memory that no cache will keep it.
#include <cstddef>

namespace hccl_like {

// As memcpy, but writes past the caches, and so does not read what it overwrites. Slower by a factor where the data would
// have stayed in a cache: for what both ends of a message touch being larger than the last one.
void copy_past_caches(std::byte* to, const std::byte* from, size_t bytes);

// Bytes of the last cache; a guess where the system does not tell.
size_t last_cache_bytes();

}  // namespace hccl_like
