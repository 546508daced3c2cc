#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "process_group/backend/options.h"
#include "python/bindings/bindings.h"

namespace hccl_like {
namespace {

namespace py = pybind11;
using OptionsPtr = c10::intrusive_ptr<Options>;

OptionsPtr copy_of(const Options& options) { return c10::make_intrusive<Options>(options); }

std::string text_of(const Options& options) {
  return "hccl_like.Options(timeout=" + std::to_string(options.timeout.count()) +
         " ms, group_name='" + options.group_name + "', group_desc='" + options.group_desc +
         "', algorithms='" + options.algorithms +
         "', deterministic=" + (options.deterministic ? "True" : "False") + ", compression='" +
         options.compression + "')";
}

void set_compression(Options& options, std::string compression) {
  if (!compression.empty()) parse_compression(compression);
  options.compression = std::move(compression);
}

template <class Bound>
void add_rendezvous_choice(Bound& options) {
  using Type = typename Bound::type;
  if constexpr (ChoosesRendezvous<Type>)
    options.def_readwrite("use_pg_for_symm_mem_rendezvous", &Type::use_pg_for_symm_mem_rendezvous);
}

}  // namespace

void bind_options(py::module_& module) {
  py::class_<Options, OptionsPtr, c10d::Backend::Options> type(
      module, "Options", "What a process group may be told when it is made (`pg_options=`).");
  type.def(py::init([](std::chrono::milliseconds timeout, std::string algorithms,
                       bool deterministic, std::string compression) {
             auto options = c10::make_intrusive<Options>(timeout);
             options->algorithms = std::move(algorithms);
             options->deterministic = deterministic;
             set_compression(*options, std::move(compression));
             return options;
           }),
           py::arg("timeout") = kBackendDefaultTimeout, py::kw_only(), py::arg("algorithms") = "",
           py::arg("deterministic") = false, py::arg("compression") = "")
      .def_readwrite("group_desc", &Options::group_desc)
      .def_readwrite("timeout", &Options::timeout, "How long a call may take, as a timedelta.")
      .def_readwrite("algorithms", &Options::algorithms,
                     "Algorithms for this group, as HCCL_LIKE_ALGO names them for all groups: "
                     "'all_reduce:ring;broadcast:chain'. Underscores do not matter: 'allreduce' is "
                     "'all_reduce'. The same on all ranks.")
      .def_readwrite("deterministic", &Options::deterministic,
                     "Reductions of this group have the same bits whatever their path, as "
                     "HCCL_LIKE_DETERMINISTIC=1 asks for all groups. The same on all ranks.")
      .def_property(
          "compression", [](const Options& options) { return options.compression; },
          &set_compression,
          "The format of float32 in messages of all_reduce, reduce_scatter and all_gather between "
          "hosts: 'mx8', 'mx4', 'bf16' or 'none'. Empty: HCCL_LIKE_COMPRESSION. The same on all "
          "ranks.")
      .def("__copy__", &copy_of)
      .def(
          "__deepcopy__",
          [](const Options& options, const py::object&) { return copy_of(options); },
          py::arg("memo"))
      .def("__repr__", &text_of);
  add_rendezvous_choice(type);
}

}  // namespace hccl_like
