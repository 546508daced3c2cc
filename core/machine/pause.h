#pragma once
// A short wait between two polls of memory that another core writes.

namespace hccl_like {

// Tens of cycles that leave the core to its other hardware thread. Arm's `yield` is a no-op on most
// processors; `isb` flushes the pipeline, as x86's `pause` does. No-op elsewhere.
inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb sy" ::: "memory");
#endif
}

}  // namespace hccl_like
