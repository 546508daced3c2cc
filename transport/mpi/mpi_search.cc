#include "transport/mpi/mpi_search.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace hccl_like {
namespace {

namespace fs = std::filesystem;

constexpr std::array kOpenMpi{"libmpi.so.40", "libmpi.so.80"};
// The standard ABI of MPI 5, and MPICH's older one, including Debian's name for it.
constexpr std::array kOthers{"libmpi_abi.so.1", "libmpi.so.12", "libmpich.so.12"};
constexpr std::array kPrograms{"mpi", "hydra", "prte", "prun", "orte", "pmi"};
constexpr std::array kVariables{"OPAL_PREFIX", "I_MPI_ROOT", "CRAY_MPICH_DIR",
                                "MPICH_DIR",   "MPI_HOME",   "MPI_ROOT"};
constexpr std::array kFolders{"lib", "lib64", "lib/release"};
// Shells and wrappers may sit between the launcher and this process.
constexpr int kGenerations = 16;

// Parses /proc/PID/stat, whose second field is a parenthesized name with arbitrary characters.
pid_t parent_in(const std::string& line) {
  const size_t name_end = line.rfind(')');
  return name_end == std::string::npos
             ? 0
             : std::atoi(line.c_str() + std::min(name_end + 4, line.size()));
}

pid_t parent_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  return std::getline(file, line) ? parent_in(line) : 0;
}

bool is_launcher(const std::string& program) {
  return std::any_of(kPrograms.begin(), kPrograms.end(),
                     [&](const char* start) { return program.starts_with(start); });
}

}  // namespace

MpiSurroundings mpi_surroundings() {
  MpiSurroundings found{[](const char* name) { return std::getenv(name); }, {}};
  pid_t process = ::getppid();
  for (int i = 0; i < kGenerations && process > 1; ++i, process = parent_of(process)) {
    std::error_code unreadable;
    const fs::path program =
        fs::read_symlink("/proc/" + std::to_string(process) + "/exe", unreadable);
    if (!unreadable && is_launcher(program.filename())) found.launchers.push_back(program);
  }
  return found;
}

bool is_open_mpi(const std::string& path) {
  return std::any_of(kOpenMpi.begin(), kOpenMpi.end(),
                     [&](const char* name) { return path.find(name) != std::string::npos; });
}

std::vector<std::string> mpi_candidates(const MpiSurroundings& surroundings,
                                        const std::vector<std::string>& hints) {
  const bool by_open_mpi = surroundings.variable("OMPI_COMM_WORLD_SIZE") != nullptr;
  const bool by_another = !by_open_mpi && surroundings.variable("PMI_RANK") != nullptr;
  std::vector<std::string> names, prefixes, found;
  if (!by_open_mpi) names.insert(names.end(), kOthers.begin(), kOthers.end());
  if (!by_another) names.insert(names.end(), kOpenMpi.begin(), kOpenMpi.end());
  const auto add = [&](const std::string& path) {
    if (std::find(found.begin(), found.end(), path) == found.end()) found.push_back(path);
  };

  for (const std::string& launcher : surroundings.launchers)
    prefixes.push_back(fs::path(launcher).parent_path().parent_path());
  for (const char* variable : kVariables)
    if (const char* const prefix = surroundings.variable(variable);
        prefix != nullptr && *prefix != 0)
      prefixes.emplace_back(prefix);
  for (const std::string& prefix : prefixes)
    for (const char* folder : kFolders)
      for (const std::string& name : names) {
        std::error_code unreadable;
        if (const fs::path path = fs::path(prefix) / folder / name; fs::exists(path, unreadable))
          add(path);
      }
  for (const std::string& name : names) add(name);
  for (const std::string& hint : hints)
    if (is_open_mpi(hint) ? !by_another : !by_open_mpi) add(hint);
  return found;
}

}  // namespace hccl_like
