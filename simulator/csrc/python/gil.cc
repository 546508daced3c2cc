#include "python/gil.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "base/blocking.h"
#include "runtime/runtime.h"

namespace torch_sim {
namespace {

namespace py = pybind11;

std::atomic<bool> interpreter_ends{false};
std::atomic<int> functions_running{0};

void* let_go() { return !interpreter_ends && PyGILState_Check() ? PyEval_SaveThread() : nullptr; }

void take_back(void* state) { PyEval_RestoreThread(static_cast<PyThreadState*>(state)); }

// Owned by work that may be dropped by any thread, at any time: gives the function back only while
// Python runs.
struct Callee {
  PyObject* function;
  explicit Callee(PyObject* f) : function(f) {}
  Callee(const Callee&) = delete;
  ~Callee() {
    if (interpreter_ends) return;
    const py::gil_scoped_acquire lock;
    Py_DECREF(function);
  }
};

void call(PyObject* function) {
  const py::gil_scoped_acquire lock;
  PyObject* result = PyObject_CallNoArgs(function);
  if (result)
    Py_DECREF(result);
  else
    PyErr_WriteUnraisable(function);
}

}  // namespace

void install_gil_hooks() { set_blocking_hooks({let_go, take_back}); }

Stream::Work in_interpreter(py::function function) {
  return [callee = std::make_shared<Callee>(function.release().ptr())] {
    ++functions_running;
    if (!interpreter_ends) call(callee->function);
    --functions_running;
  };
}

// torch's own autograd threads, one for each device, let go of their last task a little after
// backward() has returned. They need the interpreter's lock for that, and the process is aborted if
// they get to it too late. They cannot be asked whether they have; where the device has been used
// they are given the time.
constexpr auto kAutogradNeeds = std::chrono::milliseconds(20);

void stop_streams_at_exit() {
  if (Runtime::forked_away()) return;  // nothing runs here
  Stream::stop_all();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (functions_running > 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (Runtime::initialised()) std::this_thread::sleep_for(kAutogradNeeds);
  interpreter_ends = true;
}

}  // namespace torch_sim
