#pragma once
// Copies of parts of blocks, between device and host.
#include <cstddef>
#include <cstdint>

namespace torch_sim {

// Before the copy of a part of what lies at this kernel address. Counts it and, with
// Flaw::kBlockCopies, takes as long as a copy of all of it: as a device does that maps, protects or
// moves whole blocks. Any thread.
void touch_block(int device, const void* kernel, size_t bytes);

// How often, ever.
int64_t copies_of_parts();

}  // namespace torch_sim
