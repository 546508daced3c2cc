#pragma once
// Where MPI's library may be: it has to be the launcher's own, since any other makes a world of one
// rank of every process.
#include <functional>
#include <string>
#include <vector>

namespace hccl_like {

struct MpiSurroundings {
  // A variable of the environment, or null.
  std::function<const char*(const char* name)> variable;
  // Paths of the programs that started this process and belong to an MPI (mpiexec, hydra_pmi_proxy,
  // prted), nearest first.
  std::vector<std::string> launchers;
};

// This process's.
MpiSurroundings mpi_surroundings();

// Libraries to try, in this order and each once: files in the prefixes of the launchers; in the
// folders that MPIs have variables for; names that the loader looks for; `hints`, paths of
// libraries in installed packages. Under a launcher of Open MPI that is Open MPI alone, under one
// that sets PMI_RANK (MPICH, Intel MPI, Cray MPICH, MVAPICH) all but Open MPI.
std::vector<std::string> mpi_candidates(const MpiSurroundings& surroundings,
                                        const std::vector<std::string>& hints);

// Libraries of these names are Open MPI's.
bool is_open_mpi(const std::string& path);

}  // namespace hccl_like
