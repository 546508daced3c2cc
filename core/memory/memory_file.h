#pragma once
// Anonymous shared memory (memfd): nothing is left behind after a crash.
#include <cstddef>
#include <span>

#include "core/base/fd.h"

namespace hccl_like {

// Creates an empty memfd, close-on-exec and not executable. /proc shows `name`. Throws kSystem.
Fd make_shared_memory(const char* name = "hccl-like");
// Seals the size, so that no peer can truncate reserved pages. Throws kSystem.
void seal_size(int memory);
bool has_sealed_size(int memory);
// Also seals against new writers and writable mappings. Existing mappings stay writable: map first.
// Kernels before 5.1 seal only the size. Throws kSystem.
void seal_size_and_writers(int memory);
// Allocates the pages of a range. Returns false with errno on failure.
bool reserve(int memory, size_t offset, size_t bytes);
// Also maps the pages, so that the first touch is free. Kernels before 5.14 do nothing, but
// return true with errno EINVAL.
bool populate(std::span<std::byte> pages);

}  // namespace hccl_like
