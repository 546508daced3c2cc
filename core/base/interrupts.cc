#include "core/base/interrupts.h"

#include <atomic>

namespace hccl_like {
namespace {

std::atomic<InterruptCheck> the_check{nullptr};

}  // namespace

void set_interrupt_check(InterruptCheck check) { the_check = check; }

void check_interrupts() {
  if (const InterruptCheck check = the_check) check();
}

}  // namespace hccl_like
