#pragma once
// A short wait between two polls of memory that another core writes.

namespace hccl_like {

// Some tens of cycles in which the other thread of the core has it to itself. Arm's `yield` does
// nothing on most processors; `isb` empties the pipeline, as x86's `pause` does. Elsewhere nothing.
inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb sy" ::: "memory");
#endif
}

}  // namespace hccl_like
