#pragma once
// The MPI functions in use, from any MPI library of this process. The build needs no MPI.
//
// Three binary interfaces are supported. MPI 5's standard one (libmpi_abi.so.1) has numbers in
// pointers as predefined handles. MPICH's (libmpi.so.12; also Intel MPI, Cray MPICH and MVAPICH)
// has ints as handles. Open MPI's (libmpi.so.40) has addresses of its own objects as predefined
// handles. On the supported machines, which are little-endian and pass ints in registers, one set
// of declarations serves all three; only some values differ.
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
  std::string version;  // the first line, e.g. "MPICH Version: 5.0.2"

  // MPI's text for an error of `function`.
  std::string reason(const char* function, int code) const;
};

// Loads a library permanently: `setting` if not empty. Otherwise, of mpi_candidates(), the library
// that the process has loaded already, or the first loadable one. `hints` are paths. Throws
// kUnsupported with the attempts.
MpiLibrary load_mpi(const std::string& setting, const std::vector<std::string>& hints);

}  // namespace hccl_like
