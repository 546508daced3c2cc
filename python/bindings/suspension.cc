#include "process_group/suspension/suspension.h"

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <vector>

#include "process_group/diagnosis/errors.h"
#include "python/bindings/bindings.h"
#include "python/bindings/holder.h"
#include "python/bindings/process.h"

namespace hccl_like {
namespace {

namespace py = pybind11;
using gil_free = py::call_guard<py::gil_scoped_release>;
using std::chrono::milliseconds;
using Held = std::vector<GilFreePointer<Backend>>;

Held as_held(const Suspension::Groups& groups) { return {groups.begin(), groups.end()}; }
Suspension::Groups as_groups(const Held& held) { return {held.begin(), held.end()}; }

Held open_groups() {
  const auto session = current_session();
  return session ? as_held(Suspension::open_groups(*session)) : Held();
}

void hold(const Held& groups, milliseconds timeout) {
  translated("hccl-like suspend", [&] {
    Suspension::hold(as_groups(groups), current_session(), Deadline::after(timeout));
  });
}

// The messages of both communicators, as sorted lists of (peer, count).
py::list counts(const Communicators& communicators,
                std::map<int, uint64_t> Communicator::Messages::*which) {
  std::map<int, uint64_t> all;
  for (const auto* one : {&communicators.host(), &communicators.device()}) {
    const Communicator::Messages messages = (*one)->messages();
    for (const auto& [peer, count] : messages.*which) all[peer] += count;
  }
  py::list list;
  for (const auto& [peer, count] : all) list.append(py::make_tuple(peer, count));
  return list;
}

py::dict calls_made(Backend& backend) {
  py::dict made;
  const auto communicators = backend.issuer().communicators();
  if (!communicators) return made;
  made["calls"] =
      py::make_tuple(communicators->host()->sequence(), communicators->device()->sequence());
  made["sent"] = counts(*communicators, &Communicator::Messages::sent);
  made["received"] = counts(*communicators, &Communicator::Messages::received);
  return made;
}

}  // namespace

void bind_suspension(py::module_& module) {
  using BackendClass = py::class_<Backend, GilFreePointer<Backend>, c10d::Backend>;
  py::reinterpret_borrow<BackendClass>(module.attr("ProcessGroupHcclLike"))
      .def_property_readonly("_id", &Backend::id, "The number that the ranks agreed on.")
      .def_property_readonly("_store", &Backend::store)
      .def("_calls_made", &calls_made, "Numbers of calls and messages, to compare between ranks.")
      .def(
          "_rejoin",
          [](Backend& backend, const c10::intrusive_ptr<c10d::Store>& store, milliseconds timeout) {
            backend.rejoin(join_session(), store, timeout);
          },
          py::arg("store"), py::arg("timeout"), gil_free(),
          "Meets the ranks of a suspended group again.");
  module.def("_open_groups", &open_groups, gil_free(),
             "The open groups, in an order that is the same on all ranks.");
  module.def(
      "_suspended_groups", [] { return as_held(process().suspension.suspended()); }, gil_free());
  module.def("_hold_groups", &hold, py::arg("groups"), py::arg("timeout"), gil_free(),
             "Refuses calls and waits for those in flight; raises if that is not possible.");
  module.def(
      "_release_groups", [](const Held& groups) { Suspension::release(as_groups(groups)); },
      py::arg("groups"), gil_free(), "Accepts calls again.");
  module.def(
      "_leave_groups", [](const Held& groups) { process().suspension.leave(as_groups(groups)); },
      py::arg("groups"), gil_free(), "Closes all that the groups have opened.");
  module.def(
      "_groups_resumed",
      [](const Held& groups) { process().suspension.resumed(as_groups(groups)); },
      py::arg("groups"), gil_free(), "Accepts calls again, after _rejoin() of each.");
}

}  // namespace hccl_like
