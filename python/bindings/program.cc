// Python source lines for errors and tables.
#include <bit>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "process_group/diagnosis/program.h"
#include "python/bindings/bindings.h"

namespace hccl_like {
namespace {

namespace py = pybind11;

std::string folder_of(const std::string& file) { return file.substr(0, file.rfind('/') + 1); }

// Folders of torch, this package and the standard library, not of the user's program. Filled at
// import: a first use could deadlock between this static's guard and the GIL.
const std::vector<std::string>& foreign_folders() {
  static const std::vector<std::string> folders = [] {
    std::vector<std::string> all;
    for (const char* module : {"torch", "hccl_like", "os"})
      all.push_back(folder_of(py::str(py::module_::import(module).attr("__file__"))));
    return all;
  }();
  return folders;
}

bool is_foreign(std::string_view file) {
  if (file.starts_with("<frozen")) return true;
  for (const std::string& folder : foreign_folders()) {
    // Packages installed below the standard library do not belong to it.
    const bool beside = file.find("-packages/", folder.size()) != std::string_view::npos;
    if (file.starts_with(folder) && !beside) return true;
  }
  return false;
}

// The innermost line of the user program, or the innermost line of all.
ProgramLine line_of(py::object frame) {
  const auto line_at = [](const py::object& at) {
    const py::object code = at.attr("f_code");
    const py::object line = at.attr("f_lineno");  // may be None
    return ProgramLine{.file = py::str(code.attr("co_filename")),
                       .line = line.is_none() ? 0 : line.cast<int>(),
                       .function = py::str(code.attr("co_name"))};
  };
  const ProgramLine innermost = line_at(frame);
  for (py::object at = frame; !at.is_none(); at = at.attr("f_back")) {
    ProgramLine line = line_at(at);
    if (!is_foreign(line.file)) return line;
  }
  return innermost;
}

bool interpreter_runs() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() != 0 && Py_IsFinalizing() == 0;
#else
  return Py_IsInitialized() != 0 && _Py_IsFinalizing() == 0;
#endif
}

std::optional<ProgramLine> here() {
  if (!interpreter_runs()) return std::nullopt;
  const py::gil_scoped_acquire gil;
  try {
    auto* const frame = reinterpret_cast<PyObject*>(PyEval_GetFrame());
    if (frame == nullptr) return std::nullopt;
    return line_of(py::reinterpret_borrow<py::object>(frame));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::vector<ProgramThread> threads() {
  std::vector<ProgramThread> all;
  if (!interpreter_runs()) return all;
  const py::gil_scoped_acquire gil;
  try {
    const auto main =
        py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();
    const py::dict frames = py::module_::import("sys").attr("_current_frames")();
    for (const auto& [id, frame] : frames) {
      const auto number = id.cast<unsigned long>();
      static_assert(sizeof number == sizeof(std::thread::id));
      all.push_back({.id = std::bit_cast<std::thread::id>(number),
                     .is_main = number == main,
                     .line = line_of(py::reinterpret_borrow<py::object>(frame))});
    }
  } catch (const std::exception&) {
    all.clear();
  }
  return all;
}

}  // namespace

void bind_program() {
  foreign_folders();
  set_program_view({.here = &here, .threads = &threads});
}

}  // namespace hccl_like
