#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "process_group/backend/backend.h"
#include "process_group/diagnosis/errors.h"
#include "python/bindings/bindings.h"
#include "python/bindings/holder.h"
#include "python/bindings/machine.h"
#include "python/bindings/process.h"

namespace hccl_like {
namespace {

namespace py = pybind11;
using gil_free = py::call_guard<py::gil_scoped_release>;

GilFreePointer<Backend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                               const c10::intrusive_ptr<Options>& options, Membership* membership) {
  return Backend::create(join_session(), store, rank, size, options, membership);
}

// Threads of groups can be joined only while the interpreter runs.
void close_at_exit() {
  static const bool registered [[maybe_unused]] = [] {
    py::module_::import("atexit").attr("register")(
        py::module_::import("hccl_like._endings").attr("close_all_groups"));
    return true;
  }();
}

py::dict info(const Backend& backend) {
  py::dict all;
  const auto communicator = backend.communicator();
  all["open"] = communicator != nullptr;
  if (!communicator) return all;
  py::list members, layout;
  py::dict machines;
  const Hosts& hosts = communicator->topology().hosts;
  for (const ProcessRecord& member : communicator->members()) {
    layout.append(hosts.host(static_cast<int>(py::len(members))));
    members.append(py::make_tuple(member.hostname, member.pid));
    if (member.machine) machines[layout[py::len(layout) - 1]] = as_dict(*member.machine);
  }
  const auto failure = communicator->failure();
  all["name"] = communicator->name();
  all["id"] = communicator->id();
  all["members"] = members;
  all["layout"] = layout;      // the host of each rank
  all["machines"] = machines;  // by host, if inspected
  all["links"] = communicator->routes();
  all["sequence"] = communicator->sequence();
  all["failure"] = failure ? py::object(py::str(to_string(*failure))) : py::object(py::none());
  return all;
}

std::string repr(const Backend& backend) {
  return "<hccl_like.ProcessGroupHcclLike rank " + std::to_string(backend.getRank()) + " of " +
         std::to_string(backend.getSize()) + ", group '" + backend.options()->group_name + "'>";
}

}  // namespace

void bind_backend(py::module_& module) {
  py::class_<Membership>(module, "Membership", "The members of a new group, as this rank has them.")
      .def(py::init<c10::intrusive_ptr<c10d::Store>, const std::string&, std::string, int,
                    std::vector<uint64_t>>(),
           py::arg("store"), py::arg("parent"), py::arg("group"), py::arg("rank"),
           py::arg("members"))
      .def(
          "declare",
          [](Membership& membership) {
            translated("hccl-like new_group", [&] {
              process().suspension.refuse_new_group();
              membership.declare();
            });
          },
          gil_free(), "Raises if another rank has passed other members.");
  py::class_<Backend, GilFreePointer<Backend>, c10d::Backend>(
      module, "ProcessGroupHcclLike",
      "The backend of one process group, for CPU tensors and the accelerator's.")
      .def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                       const c10::intrusive_ptr<Options>& options, Membership* membership) {
             close_at_exit();
             py::gil_scoped_release release;
             translated("hccl-like", [] { process().suspension.refuse_new_group(); });
             return create(store, rank, size, options, membership);
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"),
           py::arg("membership") = nullptr,
           "Meets the other ranks through the store; blocks until all are there.")
      .def_property_readonly("options", &Backend::options)
      .def("get_error", &Backend::getError, gil_free(),
           "How the group is: SUCCESS, or the kind of its first failure.")
      .def("_set_default_timeout", &Backend::setTimeout, py::arg("timeout"), gil_free())
      .def("comm_split_count", &Backend::splits, "How many groups were split off this one.")
      .def(
          "perform_nocolor_split", [](const Backend&, const std::optional<c10::Device>&) {},
          py::arg("device"), "Nothing to do: a group is split off by its members alone.")
      .def("_info", &info, "What is known about the group, as a dict.")
      .def("__repr__", &repr);
}

}  // namespace hccl_like
