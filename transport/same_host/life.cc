#include "transport/same_host/life.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <exception>
#include <string>
#include <utility>

#include "core/base/log.h"
#include "core/base/own_thread.h"

namespace hccl_like {

Life::Life(LifeWord& word) : word_(word) {
  head_.list.next = &word_.entry;
  head_.futex_offset = offsetof(LifeWord, futex) - offsetof(LifeWord, entry);
  word_.entry.next = &head_.list;
  thread_ = own_thread("shows peers that this process lives", [this] { hold(); });
  ::pthread_setname_np(thread_.native_handle(), "hccl-like life");
  state_.wait(Thread::kStarting);
}

Life::~Life() {
  become(Thread::kEnding);
  thread_.join();
}

void Life::become(Thread state) {
  state_ = state;
  state_.notify_all();
}

void Life::lend(std::function<void()> work) {
  work_ = std::move(work);
  become(Thread::kLent);
}

void Life::take_back() { state_.wait(Thread::kLent); }

// Replaces libc's robust list of this thread, which stays empty.
void Life::hold() {
  if (::syscall(SYS_set_robust_list, &head_, sizeof head_) == 0)
    word_.futex.store(static_cast<uint32_t>(::gettid()), std::memory_order_release);
  become(Thread::kIdle);
  for (Thread now; (now = state_.load()) != Thread::kEnding;) {
    if (now == Thread::kLent)
      do_work();
    else
      state_.wait(now);
  }
  word_.futex.store(0, std::memory_order_release);
}

// The word stays held even if the work throws.
void Life::do_work() {
  try {
    work_();
  } catch (const std::exception& error) {
    log_warn(
        std::string("what the thread that shows this process to live did besides has ended: ") +
        error.what());
  }
  work_ = nullptr;
  become(Thread::kIdle);
}

}  // namespace hccl_like
