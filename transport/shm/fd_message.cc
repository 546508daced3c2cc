#include "transport/shm/fd_message.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace hccl_like {
namespace {

// The kernel requires alignment of ancillary data.
union ControlBuffer {
  char bytes[CMSG_SPACE(kMostFds * sizeof(int))];
  cmsghdr align;
};

FdMessageResult not_now_or_failed() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? FdMessageResult::kNotNow
                                                                   : FdMessageResult::kFailed;
}

FdMessageResult failed(int error_number) {
  errno = error_number;
  return FdMessageResult::kFailed;
}

void collect(msghdr& message, std::vector<Fd>& fds) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      fds.emplace_back(fd);
    }
  }
}

}  // namespace

FdMessageResult send_with_fds(int socket, std::span<const std::byte> bytes,
                              std::span<const int> fds) {
  ControlBuffer control{};
  iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fds.size() > 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size() * sizeof(int));
  }
  const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) return not_now_or_failed();
  return static_cast<size_t>(sent) == bytes.size() ? FdMessageResult::kDone : failed(EPROTO);
}

FdMessageResult receive_with_fds(int socket, std::span<std::byte> bytes, std::vector<Fd>& fds) {
  ControlBuffer control{};
  iovec data{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  const ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return not_now_or_failed();
  collect(message, fds);
  if (got == 0) return failed(0);
  if (static_cast<size_t>(got) != bytes.size() || (message.msg_flags & MSG_CTRUNC) != 0)
    return failed(EPROTO);
  return FdMessageResult::kDone;
}

}  // namespace hccl_like
