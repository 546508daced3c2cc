// Functions for the Python package that torch's generic interfaces do not offer.
#include <Python.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <thread>

#include "glue/convert.h"
#include "glue/generator.h"
#include "glue/graph.h"
#include "python/gil.h"
#include "runtime/block_copies.h"
#include "runtime/traffic.h"

namespace torch_sim {
namespace {

namespace py = pybind11;

Stream& stream_by_id(int device, int64_t id) {
  Stream* found = Runtime::get().device(device).stream(id);
  if (!found)
    throw py::value_error("sim:" + std::to_string(device) + " has no stream " + std::to_string(id));
  return *found;
}

void sleep_on(int device, int64_t id, double milliseconds) {
  stream_by_id(device, id).enqueue([=] {
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
  });
}

}  // namespace
}  // namespace torch_sim

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace torch_sim;
  install_gil_hooks();
  m.def("device_count", &Runtime::device_count);
  m.def("initialised", &Runtime::initialised);
  m.def("forked_away", &Runtime::forked_away);
  m.def("init", [] { Runtime::get(); });
  m.def("set_device", &set_current_device);
  m.def("current_device", &current_device);
  m.def("current_stream", [](int device) { return current_stream(device).id(); });
  m.def("set_stream", [](int device, int64_t id) { set_current_stream(stream_by_id(device, id)); });
  m.def("stream_priority",
        [](int device, int64_t id) { return stream_by_id(device, id).priority(); });
  m.def("sleep_on", &sleep_on);
  m.def("launch_host_func", [](int device, int64_t id, py::function function) {
    stream_by_id(device, id).enqueue(in_interpreter(std::move(function)));
  });
  m.def("default_generator", [](int device) {
    return py::reinterpret_steal<py::object>(THPGenerator_Wrap(default_generator(device)));
  });
  m.def("copies_of_parts", &copies_of_parts);
  m.def(
      "traffic",
      [] {
        using namespace py::literals;
        return py::dict("device"_a = traffic(Count::kDevice), "peer"_a = traffic(Count::kPeer),
                        "host_to_device"_a = traffic(Count::kHostToDevice),
                        "device_to_host"_a = traffic(Count::kDeviceToHost),
                        "kernels"_a = traffic(Count::kKernels), "waits"_a = traffic(Count::kWaits));
      },
      "What all devices of this process have moved, in bytes by path, with the kernels they ran "
      "and "
      "the waits of their streams for words.");
  m.def("reset_traffic", &reset_traffic, "Begin to count anew.");
  m.def("register_graphs", &register_graphs);
  m.def("stop_streams", &stop_streams_at_exit, py::call_guard<py::gil_scoped_release>());
}
