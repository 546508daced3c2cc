#include "transport/mpi/mpi_library.h"

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdlib>

#include "core/error.h"

namespace hccl_like {
namespace {

constexpr const char* kStandard = "libmpi_abi.so.1";
constexpr std::array kOpenMpi{"libmpi.so.40", "libmpi.so.80"};
// Longer than either library's texts.
constexpr size_t kTextBytes = 16 << 10;

// The standard's predefined handles are small numbers in the place of a pointer.
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
}

void bind_open_mpi(MpiLibrary& mpi, const Symbols& symbols) {
  mpi.comm_world = symbols.find("ompi_mpi_comm_world");
  mpi.byte = symbols.find("ompi_mpi_byte");
  mpi.request_null = symbols.find("ompi_request_null");
  mpi.errors_return = symbols.find("ompi_mpi_errors_return");
  mpi.thread_serialized = 2;
  mpi.thread_multiple = 3;
  mpi.tag_ub_key = 0;
}

MpiLibrary bind(void* library, const std::string& path) {
  MpiLibrary mpi{};
  mpi.path = path;
  const Symbols symbols(library, path);
  bind_functions(mpi, symbols);
  if (::dlsym(library, "ompi_mpi_comm_world") != nullptr)
    bind_open_mpi(mpi, symbols);
  else if (::dlsym(library, "MPI_Abi_get_version") != nullptr)
    bind_standard(mpi);
  else
    throw_error(ErrorCode::kUnsupported,
                path +
                    " speaks neither the standard binary interface of MPI 5 nor Open MPI's; MPICH "
                    "has the former in libmpi_abi.so.1");
  std::string text(kTextBytes, '\0');
  int bytes = 0;
  if (mpi.get_library_version(text.data(), &bytes) == 0)
    mpi.version = text.substr(0, text.find_first_of(std::string("\n\0", 2)));
  return mpi;
}

// Open MPI's own plugins look for its symbols among the process's.
int how_to_load(const std::string& path) {
  return RTLD_NOW | (path.find("libmpi_abi") == std::string::npos ? RTLD_GLOBAL : RTLD_LOCAL);
}

bool started_by_open_mpi() { return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr; }

std::vector<std::string> candidates(const std::vector<std::string>& hints) {
  std::vector<std::string> standard{kStandard}, open(kOpenMpi.begin(), kOpenMpi.end());
  for (const std::string& hint : hints)
    (hint.find("libmpi_abi") != std::string::npos ? standard : open).push_back(hint);
  auto& first = started_by_open_mpi() ? open : standard;
  auto& second = started_by_open_mpi() ? standard : open;
  // A library that does not belong to the launcher makes a world of one rank of every process.
  const bool launched = started_by_open_mpi() || std::getenv("PMI_RANK") != nullptr;
  if (!launched) first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

std::string MpiLibrary::reason(const char* function, int code) const {
  std::string text(kTextBytes, '\0');
  int bytes = 0;
  if (error_string(code, text.data(), &bytes) != 0) bytes = 0;
  return std::string(function) + ": " + text.substr(0, static_cast<size_t>(bytes));
}

MpiLibrary load_mpi(const std::string& setting, const std::vector<std::string>& hints) {
  std::vector<std::string> names{setting};
  if (setting.empty()) {
    names = candidates(hints);
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
  throw_error(ErrorCode::kUnsupported, "no MPI can be loaded: " + tried +
                                           "; name it in HCCL_LIKE_MPI_LIBRARY (libmpi_abi.so.1 of "
                                           "MPICH, or Open MPI's libmpi.so.40)");
}

}  // namespace hccl_like
