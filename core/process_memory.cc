#include "core/process_memory.h"

#include <sys/uio.h>

#include <cerrno>

namespace hccl_like {

bool read_process(int process, std::byte* to, uint64_t from, size_t bytes) {
  while (bytes > 0) {
    const iovec here{to, bytes};
    // An address of the other process's, which is never used as one of this.
    const iovec there{reinterpret_cast<void*>(from), bytes};
    const ssize_t read = ::process_vm_readv(process, &here, 1, &there, 1, 0);
    if (read < 0 && errno == EINTR) continue;
    if (read == 0) errno = EFAULT;
    if (read <= 0) return false;
    to += read;
    from += static_cast<uint64_t>(read);
    bytes -= static_cast<size_t>(read);
  }
  return true;
}

}  // namespace hccl_like
