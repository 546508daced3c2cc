#pragma once
// Finds the launcher's MPI library: with any other library every process is a world of one rank.
#include <functional>
#include <string>
#include <vector>

namespace hccl_like {

struct MpiSurroundings {
  // An environment variable, or null.
  std::function<const char*(const char* name)> variable;
  // Paths of the MPI programs that started this process (mpiexec, prted, ...), nearest first.
  std::vector<std::string> launchers;
};

MpiSurroundings mpi_surroundings();

// Libraries to try, in order and without duplicates: files in the launchers' prefixes, in folders
// named by MPI environment variables, names for the loader, and `hints` (libraries of installed
// packages). Under Open MPI's launcher only Open MPI; under one that sets PMI_RANK (MPICH, Intel
// MPI, Cray MPICH, MVAPICH) all but Open MPI.
std::vector<std::string> mpi_candidates(const MpiSurroundings& surroundings,
                                        const std::vector<std::string>& hints);

// Whether the file name is that of an Open MPI library.
bool is_open_mpi(const std::string& path);

}  // namespace hccl_like
