#include "transport/mpi/mpi_world.h"

#include <unistd.h>

#include <cstdlib>

#include "core/base/error.h"
#include "core/base/log.h"
#include "transport/security/random.h"

namespace hccl_like {
namespace {

constexpr size_t kJobDigits = 32;

// For finish_at_exit(), if this library started MPI.
const MpiLibrary* started_here = nullptr;
pid_t started_in = 0;

void finish_at_exit() {
  int finalized = 0;
  if (::getpid() != started_in || started_here->finalized(&finalized) != 0 || finalized != 0)
    return;
  started_here->finalize();
}

}  // namespace

MpiWorld& MpiWorld::join(const std::string& setting, const std::vector<std::string>& hints,
                         Deadline deadline) {
  static std::mutex mutex;
  static MpiWorld* world = nullptr;
  const std::lock_guard lock(mutex);
  if (world == nullptr) world = new MpiWorld(load_mpi(setting, hints), deadline);
  return *world;
}

MpiWorld::MpiWorld(MpiLibrary library, Deadline deadline) : library_(std::move(library)) {
  start();
  MpiLibrary::Handle request = library_.request_null;
  if (const int code = library_.comm_idup(library_.comm_world, &comm_, &request); code != 0)
    refuse("MPI_Comm_idup", code);
  finish(request, "every rank of the MPI job joins", deadline);
  library_.comm_set_errhandler(comm_, library_.errors_return);
  library_.comm_rank(comm_, &rank_);
  library_.comm_size(comm_, &size_);
  int* limit = nullptr;
  int found = 0;
  if (library_.comm_get_attr(comm_, library_.tag_ub_key, &limit, &found) == 0 && found != 0)
    last_tag_ = *limit;
  job_ = rank_ == 0 ? random_hex(kJobDigits / 2) : std::string(kJobDigits, '0');
  broadcast(std::as_writable_bytes(std::span(job_)), deadline);
  log_info([&] {
    return "MPI: " + library_.version + " (" + library_.path + "), rank " + std::to_string(rank_) +
           " of " + std::to_string(size_);
  });
}

void MpiWorld::start() {
  int initialized = 0, finalized = 0, provided = 0;
  library_.initialized(&initialized);
  library_.finalized(&finalized);
  if (finalized != 0)
    throw_error(ErrorCode::kUnsupported,
                "MPI has been finalised in this process, and cannot be started again");
  if (initialized != 0) {
    library_.query_thread(&provided);
    if (provided < library_.thread_multiple)
      throw_error(
          ErrorCode::kUnsupported,
          "the program has started MPI without MPI_THREAD_MULTIPLE, so two threads could not "
          "use it; start it with MPI_Init_thread(MPI_THREAD_MULTIPLE)");
    return;
  }
  if (const int code = library_.init_thread(nullptr, nullptr, library_.thread_multiple, &provided);
      code != 0)
    refuse("MPI_Init_thread", code);
  // Finalize in order: a launcher takes a rank that exits without MPI_Finalize for a crash.
  started_here = &library_;
  started_in = ::getpid();
  std::atexit(finish_at_exit);
  if (provided < library_.thread_serialized)
    throw_error(
        ErrorCode::kUnsupported,
        library_.version + " cannot be used by several threads in turn (MPI_THREAD_SERIALIZED)");
}

void MpiWorld::finish(MpiLibrary::Handle request, const char* what, Deadline deadline) {
  for (int done = 0;;) {
    if (const int code = library_.test(&request, &done, library_.status_ignore); code != 0)
      refuse("MPI_Test", code);
    if (done != 0) return;
    if (deadline.expired())
      throw_error(ErrorCode::kTimeout, std::string("timed out while waiting that ") + what +
                                           ": all ranks that mpirun started must make their first "
                                           "group at about the same time, or set "
                                           "HCCL_LIKE_CONNECT_TIMEOUT_MS");
    ::usleep(100);
  }
}

void MpiWorld::broadcast(std::span<std::byte> bytes, Deadline deadline) {
  MpiLibrary::Handle request = library_.request_null;
  if (const int code = library_.ibcast(bytes.data(), static_cast<int>(bytes.size()), library_.byte,
                                       0, comm_, &request);
      code != 0)
    refuse("MPI_Ibcast", code);
  finish(request, "rank 0 of the MPI job speaks", deadline);
}

void MpiWorld::refuse(const char* function, int code) const {
  throw_error(ErrorCode::kUnsupported, "MPI cannot be used: " + library_.reason(function, code));
}

}  // namespace hccl_like
