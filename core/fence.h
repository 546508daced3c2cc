#pragma once
// A full memory fence, for the two sides of a sleep (Dekker): each stores, then loads what the other stored.
#include <atomic>

namespace hccl_like {

// GCC warns that ThreadSanitizer does not model fences. Nothing but wake-ups depends on this one: data is ordered by the
// acquiring and releasing accesses to the indices and stamps.
inline void full_fence() noexcept {
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
  std::atomic_thread_fence(std::memory_order_seq_cst);
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
}

}  // namespace hccl_like
