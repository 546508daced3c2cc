#pragma once
// A few bytes and descriptors over a UNIX stream socket.
#include <cstddef>
#include <span>
#include <vector>

#include "core/base/fd.h"

namespace hccl_like {

inline constexpr size_t kMostFds = 4;

enum class FdMessageResult { kDone, kNotNow, kFailed };  // kFailed: errno tells; 0: the peer closed

// All of the bytes or nothing. Never blocks, never raises SIGPIPE.
FdMessageResult send_with_fds(int socket, std::span<const std::byte> bytes,
                              std::span<const int> fds);
// All of `bytes` or nothing; `fds` gets whatever came along, closed on exec. A message that is cut
// short, or brings too many descriptors, is kFailed with EPROTO.
FdMessageResult receive_with_fds(int socket, std::span<std::byte> bytes, std::vector<Fd>& fds);

}  // namespace hccl_like
