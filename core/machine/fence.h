#pragma once
// Memory fences for sleep/wake (Dekker) and for sequence-lock readers.
#include <atomic>

namespace hccl_like {

// GCC warns that ThreadSanitizer does not model fences. The shared data is ordered by acquire and
// release accesses to indices and stamps.
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif

// For Dekker: each side stores, then loads the other side's store.
inline void full_fence() noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }

// Orders earlier loads before later loads and stores. An acquire load orders only later accesses.
inline void acquire_fence() noexcept { std::atomic_thread_fence(std::memory_order_acquire); }

#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

}  // namespace hccl_like
