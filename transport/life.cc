#include "transport/life.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

#include "core/own_thread.h"

namespace hccl_like {

Life::Life(LifeWord& word) : word_(word) {
  head_.list.next = &word_.entry;
  head_.futex_offset = offsetof(LifeWord, futex) - offsetof(LifeWord, entry);
  word_.entry.next = &head_.list;
  thread_ = own_thread("shows peers that this process lives", [this] { hold(); });
  ::pthread_setname_np(thread_.native_handle(), "hccl-like life");
  held_.wait(false);
}

Life::~Life() {
  ending_ = true;
  ending_.notify_one();
  thread_.join();
}

// libc has a list of its own for the thread, which is empty and stays so.
void Life::hold() {
  if (::syscall(SYS_set_robust_list, &head_, sizeof head_) == 0)
    word_.futex.store(static_cast<uint32_t>(::gettid()), std::memory_order_release);
  held_ = true;
  held_.notify_one();
  ending_.wait(false);
  word_.futex.store(0, std::memory_order_release);
}

}  // namespace hccl_like
