#pragma once
// Opens a file of another process of this user through that process's /proc entry.
#include <cstdint>

#include "core/base/fd.h"

namespace hccl_like {

// Opens file descriptor `descriptor` of process `process` for reading and writing. Before the open,
// checks for a regular file of this user: the number may be reused, and opening a device has
// effects. The caller must check the content. Throws kSystem if this host denies access, kPeerLost
// without such a file.
Fd open_peer_file(int64_t process, int64_t descriptor);

}  // namespace hccl_like
