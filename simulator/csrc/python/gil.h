#pragma once

#include <pybind11/pybind11.h>

#include "runtime/stream.h"

namespace torch_sim {

// From now on a thread that waits for the device lets go of the interpreter's lock meanwhile.
void install_gil_hooks();

// Work that calls a Python function without arguments. An exception in it is reported as Python
// reports those of destructors: nobody waits for it.
Stream::Work in_interpreter(pybind11::function function);

// To be called before the interpreter ends, without its lock: no stream begins anything after this,
// and Python functions that streams are running have ended, or are given up after a while.
void stop_streams_at_exit();

}  // namespace torch_sim
