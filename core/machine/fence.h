#pragma once
// Memory fences. The first is for the two sides of a sleep (Dekker), the second for whoever reads
// first and then asks whether it may believe what it has read (a sequence lock's reader).
#include <atomic>

namespace hccl_like {

// GCC warns that ThreadSanitizer does not model fences. Data that it watches is ordered by the
// acquiring and releasing accesses to the indices and stamps.
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif

// Each side stores, then loads what the other stored.
inline void full_fence() noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }

// Loads before it stay before loads and stores behind it. An acquiring load does not do that: it
// orders only what follows it.
inline void acquire_fence() noexcept { std::atomic_thread_fence(std::memory_order_acquire); }

#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

}  // namespace hccl_like
