#pragma once
// Detects the death of a local process by a word of shared memory, within milliseconds.
//
// The kernel closes the sockets of a killed process only after freeing its memory (1 s for some
// GiB), but marks robust futexes before that (Linux: Documentation/locking/robust-futex-ABI.rst).
#include <linux/futex.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

namespace hccl_like {

// Written by the process, read by its peers. Initially zero.
struct LifeWord {
  // Whether the process died while holding the word. False after a release. Any process.
  bool died() const { return (futex.load(std::memory_order_acquire) & FUTEX_OWNER_DIED) != 0; }

  robust_list entry{};  // used by the owner only
  std::atomic<uint32_t> futex{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// Holds a word during its lifetime, on a thread of its own: a robust futex belongs to one thread,
// and threads of the program may exit. The thread is otherwise idle and can be lent.
class Life {
 public:
  // `word` must outlive this object. Throws kSystem if no thread can start. Without robust futexes
  // peers detect a death by their sockets.
  explicit Life(LifeWord& word);
  // Releases the word. A forked child must not call this: it has no such thread.
  ~Life();
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;

  // Runs `work` on the thread until `work` returns; exceptions are logged. take_back() must precede
  // the next lend() and the destructor. One thread at a time.
  void lend(std::function<void()> work);
  // Waits until the work returns. The caller must have told the work to end.
  void take_back();

 private:
  enum class Thread : int { kStarting, kIdle, kLent, kEnding };

  void hold();
  void do_work();
  void become(Thread state);

  LifeWord& word_;
  robust_list_head head_{};
  std::atomic<Thread> state_{Thread::kStarting};
  std::function<void()> work_;  // while lent
  std::thread thread_;
};

}  // namespace hccl_like
