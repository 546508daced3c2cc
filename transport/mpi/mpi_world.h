#pragma once
// MPI as this process has it: started once, with a communicator of our own that has every rank of
// the job.
#include <cstddef>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/base/deadline.h"
#include "transport/mpi/mpi_library.h"

namespace hccl_like {

// MPI can be started once in a process and lives to its end, so there is one of these and it is
// never destroyed. If the program has started MPI itself (mpi4py, say), that is used, and ended by
// the program; else it is started here, and ended when the process exits.
class MpiWorld {
 public:
  // Starts it, with the library that load_mpi() finds. Every rank of the MPI job has to come: it
  // duplicates the world's communicator, and throws kTimeout, naming MPI, if that is not done by
  // the deadline; other failures are kUnsupported. Later calls return the same, whatever their
  // arguments. Any thread.
  static MpiWorld& join(const std::string& setting, const std::vector<std::string>& hints,
                        Deadline deadline);

  const MpiLibrary& library() const { return library_; }
  MpiLibrary::Handle comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  // Tags go from 0 to this.
  int last_tag() const { return last_tag_; }
  // The same on every rank of this job, and on no other: drawn by rank 0.
  const std::string& job() const { return job_; }

  // From rank 0 to all; every rank calls it with as many bytes. Blocks until the deadline at most,
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
