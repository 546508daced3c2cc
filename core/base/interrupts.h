#pragma once
// Handles signals, Ctrl-C above all, while a thread waits for a call.
#include <chrono>

#include "core/base/deadline.h"

namespace hccl_like {

// A waiting thread calls the check periodically. The check may throw, which ends the wait but not
// the call. The language bindings set it once; without one, nothing is called.
using InterruptCheck = void (*)();
void set_interrupt_check(InterruptCheck check);

// Longest delay until a signal is handled.
inline constexpr std::chrono::milliseconds kInterruptCheck{200};

void check_interrupts();

// Calls wait(deadline) in steps of kInterruptCheck, with a signal check after each. wait() returns
// false at its deadline. The caller holds no lock. Throws the check's exceptions.
template <class Wait>
bool wait_interruptibly(Deadline deadline, Wait&& wait) {
  while (true) {
    const Deadline part = earliest(deadline, Deadline::after(kInterruptCheck));
    if (wait(part)) return true;
    if (deadline.expired()) return false;
    check_interrupts();
  }
}

}  // namespace hccl_like
