#pragma once
// A few bytes and file descriptors over a UNIX stream socket.
#include <cstddef>
#include <span>
#include <vector>

#include "core/base/fd.h"

namespace hccl_like {

inline constexpr size_t kMostFds = 4;

enum class FdMessageResult { kDone, kNotNow, kFailed };  // kFailed: errno; 0: closed by the peer

// Sends all bytes or nothing. Never blocks, never raises SIGPIPE.
FdMessageResult send_with_fds(int socket, std::span<const std::byte> bytes,
                              std::span<const int> fds);
// Receives all of `bytes` or nothing. Received descriptors are close-on-exec. A truncated message
// or too many descriptors give kFailed with EPROTO.
FdMessageResult receive_with_fds(int socket, std::span<std::byte> bytes, std::vector<Fd>& fds);

}  // namespace hccl_like
