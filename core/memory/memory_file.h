#pragma once
// Nameless shared memory: nothing is left behind whoever dies when.
#include <cstddef>
#include <span>

#include "core/base/fd.h"

namespace hccl_like {

// An empty memfd, closed on exec and not executable; what /proc shows of it has the name. Throws
// kSystem.
Fd make_shared_memory(const char* name = "hccl-like");
// Makes the size final, so that touching what was reserved cannot fail, whatever a peer does.
// Throws kSystem.
void seal_size(int memory);
bool has_sealed_size(int memory);
// The same, and nobody can write or map it for writing any more; mappings that exist stay writable,
// so the owner maps it before. A kernel before 5.1 makes the size final only. Throws kSystem.
void seal_size_and_writers(int memory);
// Allocates the pages of a range; false, with errno, if they cannot be had.
bool reserve(int memory, size_t offset, size_t bytes);
// The same of mapped pages, which are then mapped, too: the first touch costs nothing. A kernel
// before 5.14 leaves them as they are; errno is EINVAL then.
bool populate(std::span<std::byte> pages);

}  // namespace hccl_like
