#pragma once
// A file that another process of this user has open, reached through that process's entry in /proc.
#include <cstdint>

#include "core/base/fd.h"

namespace hccl_like {

// Opens for reading and writing what is behind descriptor `descriptor` of process `process`, which
// is found to be a regular file (memory files are) of this user before it is opened: the number may
// by now be anything, and opening a device has effects. What is in the file is for the caller to
// check. Throws kSystem if this host keeps it from us, kPeerLost if it is no such file.
Fd open_peer_file(int64_t process, int64_t descriptor);

}  // namespace hccl_like
