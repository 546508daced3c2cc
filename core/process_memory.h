#pragma once
// Memory of other processes, read by the kernel: one copy, where a way through shared memory takes two.
#include <cstddef>
#include <cstdint>

namespace hccl_like {

// Copies `bytes` bytes from address `from` of a process of this host, which may be this one. False, and errno tells why, if
// it is gone, nothing lies there, or the system does not let this process look at it (ptrace(2), PTRACE_MODE_ATTACH: another
// user, a process that may not be looked at, a filter of system calls). Some bytes may have been copied then. A number may
// belong to another process since: whoever reads must know by other means that the one meant was alive afterwards.
bool read_process(int process, std::byte* to, uint64_t from, size_t bytes);

}  // namespace hccl_like
