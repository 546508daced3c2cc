#pragma once
// The few functions of MPI that are used, in whatever MPI this process has: no MPI is needed to
// build this.
//
// Three binary interfaces are known: the standard one of MPI 5 (libmpi_abi.so.1), whose predefined
// handles are numbers in pointers; MPICH's (libmpi.so.12; Intel MPI, Cray MPICH and MVAPICH have
// the same), whose handles are ints; and Open MPI's (libmpi.so.40), whose predefined handles are
// addresses of its own objects. On the machines that this is built for, which pass ints in
// registers and are little-endian, one set of declarations serves; what differs is a handful of
// values.
#include <string>
#include <vector>

namespace hccl_like {

struct MpiLibrary {
  using Handle = void*;

  int (*init_thread)(int*, char***, int required, int* provided);
  int (*initialized)(int*);
  int (*finalized)(int*);
  int (*query_thread)(int*);
  int (*finalize)();
  int (*comm_rank)(Handle, int*);
  int (*comm_size)(Handle, int*);
  int (*comm_idup)(Handle, Handle*, Handle* request);
  int (*comm_get_attr)(Handle, int key, void* value, int* found);
  int (*comm_set_errhandler)(Handle, Handle);
  int (*ibcast)(void*, int count, Handle type, int root, Handle comm, Handle* request);
  int (*isend)(const void*, int count, Handle type, int to, int tag, Handle comm, Handle* request);
  int (*irecv)(void*, int count, Handle type, int from, int tag, Handle comm, Handle* request);
  int (*test)(Handle* request, int* done, void* status);
  int (*cancel)(Handle* request);
  int (*request_free)(Handle* request);
  int (*get_library_version)(char*, int*);
  int (*error_string)(int, char*, int*);

  Handle comm_world, byte, request_null, errors_return;
  int thread_serialized, thread_multiple, tag_ub_key;
  void* status_ignore;

  std::string path;
  std::string version;  // "MPICH Version: 5.0.2", the first line

  // What MPI says about an error, and which function it was.
  std::string reason(const char* function, int code) const;
};

// Loads one, for good: `setting` if it is not empty; else, of what mpi_candidates() names, the one
// that this process has loaded already, or the first that can be loaded. `hints` are paths. Throws
// kUnsupported, with what was tried.
MpiLibrary load_mpi(const std::string& setting, const std::vector<std::string>& hints);

}  // namespace hccl_like
