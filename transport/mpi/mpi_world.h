#pragma once
// This process's MPI, started once, with a private communicator of all ranks of the job.
#include <cstddef>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/base/deadline.h"
#include "transport/mpi/mpi_library.h"

namespace hccl_like {

// MPI starts once per process and lives to its end, so this object is a singleton and never
// destroyed. If the program has started MPI itself (e.g. mpi4py), the program ends it. Otherwise
// join() starts MPI, and MPI ends when the process exits.
class MpiWorld {
 public:
  // Starts MPI with load_mpi()'s library. Collective over all ranks of the MPI job: duplicates the
  // world communicator. Throws kTimeout, naming MPI, at the deadline, and kUnsupported for other
  // failures. Later calls return the same object for any arguments. Any thread.
  static MpiWorld& join(const std::string& setting, const std::vector<std::string>& hints,
                        Deadline deadline);

  const MpiLibrary& library() const { return library_; }
  MpiLibrary::Handle comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  // The largest tag; the smallest is 0.
  int last_tag() const { return last_tag_; }
  // A job id, equal on all ranks of this job and different in others; drawn by rank 0.
  const std::string& job() const { return job_; }

  // Broadcasts from rank 0. Every rank passes the same number of bytes. Blocks until the deadline,
  // then throws kTimeout.
  void broadcast(std::span<std::byte> bytes, Deadline deadline);

 private:
  MpiWorld(MpiLibrary library, Deadline deadline);
  void start();
  void finish(MpiLibrary::Handle request, const char* what, Deadline deadline);
  [[noreturn]] void refuse(const char* function, int code) const;

  const MpiLibrary library_;
  MpiLibrary::Handle comm_ = nullptr;
  int rank_ = 0, size_ = 0, last_tag_ = 32767;
  std::string job_;
};

}  // namespace hccl_like
