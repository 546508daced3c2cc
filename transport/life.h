#pragma once
// Whether a process of this host lives, in a word of shared memory: known in milliseconds whatever its size.
//
// A killed process closes its sockets only after the kernel has freed its memory, a second for some GiB. Its robust
// futexes are marked before that (Documentation/locking/robust-futex-ABI.rst in the kernel's tree).
#include <linux/futex.h>

#include <atomic>
#include <cstdint>
#include <thread>

namespace hccl_like {

// Lies in memory that the process writes and its peers read; starts out as zeros.
struct LifeWord {
  // Whether the process died while it held the word. One that let go of it, or never held it, has not. Any process.
  bool died() const { return (futex.load(std::memory_order_acquire) & FUTEX_OWNER_DIED) != 0; }

  robust_list entry{};  // its process's alone
  std::atomic<uint32_t> futex{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// Holds a word while it exists. It takes a thread of its own, which only sleeps: a word belongs to the thread that took
// it, and the program's threads come and go.
class Life {
 public:
  // `word` must outlive it. Throws kSystem without a thread. A system without robust futexes is no error: peers learn of a
  // death by their sockets then.
  explicit Life(LifeWord& word);
  // Lets go. Not in a forked child, which has no such thread.
  ~Life();
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;

 private:
  void hold();

  LifeWord& word_;
  robust_list_head head_{};
  std::atomic<bool> held_{false};
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace hccl_like
