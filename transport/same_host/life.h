#pragma once
// Whether a process of this host lives, in a word of shared memory: known in milliseconds whatever
// its size.
//
// A killed process closes its sockets only after the kernel has freed its memory, a second for some
// GiB. Its robust futexes are marked before that (Documentation/locking/robust-futex-ABI.rst in the
// kernel's tree).
#include <linux/futex.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

namespace hccl_like {

// Lies in memory that the process writes and its peers read; starts out as zeros.
struct LifeWord {
  // Whether the process died while it held the word. One that let go of it, or never held it, has
  // not. Any process.
  bool died() const { return (futex.load(std::memory_order_acquire) & FUTEX_OWNER_DIED) != 0; }

  robust_list entry{};  // its process's alone
  std::atomic<uint32_t> futex{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// Holds a word while it exists. It takes a thread of its own: a word belongs to the thread that
// took it, and the program's threads come and go. The thread has nothing else to do, so it is lent.
class Life {
 public:
  // `word` must outlive it. Throws kSystem without a thread. A system without robust futexes is no
  // error: peers learn of a death by their sockets then.
  explicit Life(LifeWord& word);
  // Lets go. Not in a forked child, which has no such thread.
  ~Life();
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;

  // The thread does `work`, from when it is lent until that returns; what it throws is logged. To
  // be taken back before it is lent again, and before the end. By one thread at a time.
  void lend(std::function<void()> work);
  // Waits until the work has returned, which somebody has to tell it to.
  void take_back();

 private:
  enum class Thread : int { kStarting, kIdle, kLent, kEnding };

  void hold();
  void do_work();
  void become(Thread state);

  LifeWord& word_;
  robust_list_head head_{};
  std::atomic<Thread> state_{Thread::kStarting};
  std::function<void()> work_;  // while it is lent
  std::thread thread_;
};

}  // namespace hccl_like
