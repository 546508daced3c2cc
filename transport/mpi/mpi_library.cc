#include "transport/mpi/mpi_library.h"

#include <dlfcn.h>

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "transport/mpi/mpi_search.h"

namespace hccl_like {
namespace {

// Longer than the texts of all libraries.
constexpr size_t kTextBytes = 16 << 10;

// A linker script, which stands in for a link to the library, is shorter.
constexpr uintmax_t kScriptBytes = 256;

MpiLibrary::Handle number(uintptr_t value) { return reinterpret_cast<MpiLibrary::Handle>(value); }

class Symbols {
 public:
  Symbols(void* library, const std::string& path) : library_(library), path_(path) {}
  void* find(const char* name) const {
    void* const symbol = ::dlsym(library_, name);
    if (symbol == nullptr)
      throw_error(ErrorCode::kUnsupported,
                  path_ + " is not an MPI that is known: it lacks " + name);
    return symbol;
  }
  template <class Function>
  void bind(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(find(name));
  }

 private:
  void* library_;
  const std::string& path_;
};

void bind_functions(MpiLibrary& mpi, const Symbols& symbols) {
  symbols.bind(mpi.init_thread, "MPI_Init_thread");
  symbols.bind(mpi.initialized, "MPI_Initialized");
  symbols.bind(mpi.finalized, "MPI_Finalized");
  symbols.bind(mpi.query_thread, "MPI_Query_thread");
  symbols.bind(mpi.finalize, "MPI_Finalize");
  symbols.bind(mpi.comm_rank, "MPI_Comm_rank");
  symbols.bind(mpi.comm_size, "MPI_Comm_size");
  symbols.bind(mpi.comm_idup, "MPI_Comm_idup");
  symbols.bind(mpi.comm_get_attr, "MPI_Comm_get_attr");
  symbols.bind(mpi.comm_set_errhandler, "MPI_Comm_set_errhandler");
  symbols.bind(mpi.ibcast, "MPI_Ibcast");
  symbols.bind(mpi.isend, "MPI_Isend");
  symbols.bind(mpi.irecv, "MPI_Irecv");
  symbols.bind(mpi.test, "MPI_Test");
  symbols.bind(mpi.cancel, "MPI_Cancel");
  symbols.bind(mpi.request_free, "MPI_Request_free");
  symbols.bind(mpi.get_library_version, "MPI_Get_library_version");
  symbols.bind(mpi.error_string, "MPI_Error_string");
}

// The values of MPI 5.0, appendix A.
void bind_standard(MpiLibrary& mpi) {
  mpi.comm_world = number(0x101);
  mpi.byte = number(0x247);
  mpi.request_null = number(0x180);
  mpi.errors_return = number(0x143);
  mpi.thread_serialized = 2048;
  mpi.thread_multiple = 4096;
  mpi.tag_ub_key = 501;
  mpi.status_ignore = nullptr;
}

// The common ABI of MPICH, Intel MPI, Cray MPICH and MVAPICH (https://www.mpich.org/abi). Handles
// are ints: a register passes the lower half of a Handle, and a write through a pointer leaves the
// upper half zero.
void bind_mpich(MpiLibrary& mpi) {
  mpi.comm_world = number(0x44000000);
  mpi.byte = number(0x4c00010d);
  mpi.request_null = number(0x2c000000);
  mpi.errors_return = number(0x54000001);
  mpi.thread_serialized = 2;
  mpi.thread_multiple = 3;
  mpi.tag_ub_key = 0x64400001;
  mpi.status_ignore = number(1);
}

void bind_open_mpi(MpiLibrary& mpi, const Symbols& symbols) {
  mpi.comm_world = symbols.find("ompi_mpi_comm_world");
  mpi.byte = symbols.find("ompi_mpi_byte");
  mpi.request_null = symbols.find("ompi_request_null");
  mpi.errors_return = symbols.find("ompi_mpi_errors_return");
  mpi.thread_serialized = 2;
  mpi.thread_multiple = 3;
  mpi.tag_ub_key = 0;
  mpi.status_ignore = nullptr;
}

// A library may have the function without the interface, and then returns -1.
bool is_standard(void* library) {
  using Ask = int(int* major, int* minor);
  auto* const ask = reinterpret_cast<Ask*>(::dlsym(library, "MPI_Abi_get_version"));
  int major = -1, minor = -1;
  return ask != nullptr && ask(&major, &minor) == 0 && major >= 1;
}

bool is_mpich(const std::string& version) {
  return version.find("MPICH") != std::string::npos ||
         version.find("MVAPICH") != std::string::npos ||
         version.find("Intel(R) MPI") != std::string::npos;
}

MpiLibrary bind(void* library, const std::string& path) {
  MpiLibrary mpi{};
  mpi.path = path;
  const Symbols symbols(library, path);
  bind_functions(mpi, symbols);
  std::string text(kTextBytes, '\0');
  int bytes = 0;
  if (mpi.get_library_version(text.data(), &bytes) == 0)
    mpi.version = text.substr(0, text.find_first_of(std::string("\n\0", 2)));
  if (::dlsym(library, "ompi_mpi_comm_world") != nullptr)
    bind_open_mpi(mpi, symbols);
  else if (is_standard(library))
    bind_standard(mpi);
  else if (is_mpich(mpi.version))
    bind_mpich(mpi);
  else
    throw_error(ErrorCode::kUnsupported,
                path + " (" + mpi.version +
                    ") has none of the known binary interfaces: MPI 5's, MPICH's and Open MPI's");
  return mpi;
}

// Open MPI's plugins need its symbols globally. The name libmpi.so does not tell the MPI.
int how_to_load(const std::string& path) {
  const bool another =
      path.find("libmpi_abi") != std::string::npos || path.find(".so.12") != std::string::npos;
  return RTLD_NOW | (another ? RTLD_LOCAL : RTLD_GLOBAL);
}

// Resolves a linker script "INPUT(libmpi_abi.so.1)", which packages without symbolic links contain.
std::string without_script(const std::string& path) {
  std::error_code unknown;
  const uintmax_t bytes = std::filesystem::file_size(path, unknown);
  if (unknown || bytes > kScriptBytes) return path;
  std::ifstream file(path);
  std::string word;
  if (!std::getline(file, word, '(') || !std::getline(file, word, ')')) return path;
  return std::filesystem::path(path).replace_filename(word);
}

}  // namespace

std::string MpiLibrary::reason(const char* function, int code) const {
  std::string text(kTextBytes, '\0');
  int bytes = 0;
  if (error_string(code, text.data(), &bytes) != 0) bytes = 0;
  return std::string(function) + ": " + text.substr(0, static_cast<size_t>(bytes));
}

MpiLibrary load_mpi(const std::string& setting, const std::vector<std::string>& hints) {
  std::vector<std::string> names{without_script(setting)};
  if (setting.empty()) {
    names = mpi_candidates(mpi_surroundings(), hints);
    for (const std::string& name : names)
      if (void* const loaded = ::dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD); loaded != nullptr)
        return bind(loaded, name);
  }
  std::string tried;
  for (const std::string& name : names) {
    if (void* const library = ::dlopen(name.c_str(), how_to_load(name)); library != nullptr)
      return bind(library, name);
    const char* const why = ::dlerror();
    tried += (tried.empty() ? "" : "; ") + (why == nullptr ? name : std::string(why));
  }
  throw_error(ErrorCode::kUnsupported,
              "no MPI can be loaded: " + tried +
                  "; name the library of the MPI that started this process in "
                  "HCCL_LIKE_MPI_LIBRARY (libmpi_abi.so.1, libmpi.so.12 or libmpi.so.40)");
}

}  // namespace hccl_like
