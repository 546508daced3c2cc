#include "runtime/idle_calls.h"

#include <mutex>

#include "base/blocking.h"
#include "base/flaws.h"
#include "runtime/runtime.h"

namespace torch_sim {
namespace {

std::mutex in_idle_call;

}  // namespace

void await_idle_calls() {
  if (has(Flaw::kIdleCalls)) const std::lock_guard lock(in_idle_call);
}

void idle_call() {
  if (!has(Flaw::kIdleCalls) || !Runtime::initialised()) return;
  const BlockingRegion region;
  const std::lock_guard lock(in_idle_call);
  for (int device = 0; device < Runtime::device_count(); ++device)
    Runtime::get().device(device).synchronize();
}

}  // namespace torch_sim
