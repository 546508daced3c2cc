#pragma once
// Lets the program answer a signal, Ctrl-C first of all, while it waits in here.
#include <chrono>

#include "core/base/deadline.h"

namespace hccl_like {

// What a waiting thread calls now and then; it may throw, which ends the wait and not the call that
// is waited for. Set once, by whoever knows the program's language; until then nothing is called.
using InterruptCheck = void (*)();
void set_interrupt_check(InterruptCheck check);

// How long a signal may go unanswered.
inline constexpr std::chrono::milliseconds kInterruptCheck{200};

void check_interrupts();

// Waits by wait(deadline), which tells whether what is waited for came before the deadline. The
// caller holds no lock. Throws what the check throws.
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
