// Handles Ctrl-C while a thread waits for a call.
#include <unistd.h>

#include "core/base/interrupts.h"
#include "python/bindings/bindings.h"

namespace hccl_like {
namespace {

// Python handles signals only in the main thread; others avoid a finalizing interpreter.
void check_signals() {
  if (::gettid() != ::getpid() || Py_IsInitialized() == 0) return;
  const pybind11::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

}  // namespace

void bind_signals() { set_interrupt_check(&check_signals); }

}  // namespace hccl_like
