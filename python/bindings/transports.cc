#include <torch/csrc/utils/pybind.h>

#include <cstdlib>

#include "core/settings/config.h"
#include "python/bindings/bindings.h"
#include "python/bindings/process.h"
#include "transport/mpi/mpi_world.h"
#include "transport/network/address.h"

namespace hccl_like {

namespace py = pybind11;

namespace {

constexpr size_t kLongestBroadcast = 8192;

MpiWorld& mpi_world(int64_t timeout_ms) {
  std::vector<std::string> hints;
  {
    Process& all = process();
    std::lock_guard lock(all.mutex);
    hints = all.transports.libraries["mpi"];
  }
  return MpiWorld::join(Config::from_environment().mpi_library, hints,
                        Deadline::after(std::chrono::milliseconds(timeout_ms)));
}

}  // namespace

void bind_transports(py::module_& module) {
  module.def(
      "register_transport",
      [](std::string name, std::string library_path) {
        Process& all = process();
        std::lock_guard lock(all.mutex);
        all.transports.paths[std::move(name)] = std::move(library_path);
      },
      py::arg("name"), py::arg("library_path"), py::call_guard<py::gil_scoped_release>(),
      "The transport that HCCL_LIKE_TRANSPORTS calls `name` is in this shared library. It is "
      "loaded "
      "when the first group is made and the setting names it.");
  module.def(
      "register_broken_transport",
      [](std::string name, std::string reason) {
        Process& all = process();
        std::lock_guard lock(all.mutex);
        all.transports.broken[std::move(name)] = std::move(reason);
      },
      py::arg("name"), py::arg("reason"), py::call_guard<py::gil_scoped_release>(),
      "There is a transport of this name that cannot be used; whoever names it is told why.");
  module.def(
      "_addresses",
      [] {
        const Config config = Config::from_environment();
        const auto filter =
            effective_filter(config.socket_ifname, std::getenv("GLOO_SOCKET_IFNAME"),
                             std::getenv("NCCL_SOCKET_IFNAME"));
        std::vector<std::string> addresses;
        for (const auto& one : candidates(system_addresses(), filter))
          addresses.push_back(one.address.to_string());
        return addresses;
      },
      py::call_guard<py::gil_scoped_release>(),
      "This host's addresses that the settings allow, best first, loopback last.");
  module.def(
      "_mpi_world",
      [](int64_t timeout_ms) {
        const MpiWorld& world = mpi_world(timeout_ms);
        return std::pair(world.rank(), world.size());
      },
      py::arg("timeout_ms"), py::call_guard<py::gil_scoped_release>(),
      "This process's rank in the MPI job, and the job's size. Starts MPI if nobody has; all ranks "
      "call it.");
  module.def(
      "_mpi_broadcast",
      [](std::string text, int64_t timeout_ms) {
        text.resize(kLongestBroadcast);
        mpi_world(timeout_ms)
            .broadcast(std::as_writable_bytes(std::span(text)),
                       Deadline::after(std::chrono::milliseconds(timeout_ms)));
        return text.substr(0, text.find('\0'));
      },
      py::arg("text"), py::arg("timeout_ms"), py::call_guard<py::gil_scoped_release>(),
      "Rank 0's text, on every rank of the MPI job; all call it.");
  module.def(
      "register_transport_library",
      [](const std::string& transport, std::string library_path) {
        Process& all = process();
        std::lock_guard lock(all.mutex);
        all.transports.libraries[transport].push_back(std::move(library_path));
      },
      py::arg("transport"), py::arg("library_path"), py::call_guard<py::gil_scoped_release>(),
      "A library that this transport may load if the loader finds none by itself.");
}

}  // namespace hccl_like
