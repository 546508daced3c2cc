// The system calls of a simulated process, which go to its Network; those of anybody else go to the
// system.
#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstring>
#include <memory>
#include <utility>

#include "tests/fault_simulation/sockets/network.h"

using hccl_like::fault_simulation::Endpoint, hccl_like::fault_simulation::EpollFile,
    hccl_like::fault_simulation::EventFile, hccl_like::fault_simulation::kForEver,
    hccl_like::fault_simulation::kMillisecond, hccl_like::fault_simulation::kSecond,
    hccl_like::fault_simulation::the_network, hccl_like::fault_simulation::now,
    hccl_like::fault_simulation::Socket, hccl_like::fault_simulation::Time;

namespace {

bool inside() { return the_network != nullptr && the_network->inside(); }

int failed(int error) {
  errno = error;
  return -1;
}

Endpoint endpoint(const sockaddr* address) {
  sockaddr_in v4;
  std::memcpy(&v4, address, sizeof v4);
  return {ntohl(v4.sin_addr.s_addr), ntohs(v4.sin_port)};
}

void put(Endpoint from, sockaddr* address, socklen_t* length) {
  if (address == nullptr) return;
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(from.ip);
  v4.sin_port = htons(from.port);
  std::memcpy(address, &v4, std::min<size_t>(*length, sizeof v4));
  *length = sizeof v4;
}

// The attempts to send again that a kernel has made of what was sent so long ago.
unsigned attempts(Time elapsed) {
  unsigned count = 0;
  for (Time pause = 200 * kMillisecond, at = pause; at <= elapsed; pause *= 2, at += pause) ++count;
  return count;
}

ssize_t give(const std::shared_ptr<Socket>& socket, std::string bytes) {
  if (socket->error != 0) return failed(std::exchange(socket->error, 0));
  if (socket->state != Socket::State::kUp) return failed(EPIPE);
  if (the_network->current_is_dead()) return failed(EAGAIN);
  const size_t room = socket->capacity_left();
  if (room == 0) return failed(EAGAIN);
  if (bytes.size() > room) bytes.resize(room);
  const auto count = static_cast<ssize_t>(bytes.size());
  if (count > 0) the_network->send(socket, std::move(bytes));
  return count;
}

// Some of what has arrived: not always all that there is room for.
ssize_t take(Socket& socket, const iovec* pieces, size_t count, int flags) {
  size_t asked = 0;
  for (size_t i = 0; i < count; ++i) asked += pieces[i].iov_len;
  size_t most = std::min(asked, socket.unread());
  if (most == 0) {
    if (socket.error != 0) return failed(std::exchange(socket.error, 0));
    if (socket.fin || socket.state == Socket::State::kOver || asked == 0) return 0;
    return failed(EAGAIN);
  }
  if (most > 1 && the_network->random.chance(20)) most = 1 + the_network->random.below(most);
  size_t done = 0;
  for (size_t i = 0; i < count && done < most; ++i) {
    const size_t part = std::min(pieces[i].iov_len, most - done);
    std::memcpy(pieces[i].iov_base, socket.in.data() + socket.head + done, part);
    done += part;
  }
  if (flags & MSG_PEEK) return static_cast<ssize_t>(done);
  const std::string bytes(socket.in, socket.head, done);
  socket.head += done;
  socket.taken += done;
  if (socket.unread() == 0) {
    socket.in.clear();
    socket.head = 0;
  }
  the_network->received(socket, bytes);
  return static_cast<ssize_t>(done);
}

int wait_for(int fd, Time until) {
  for (;;) {
    const auto file = the_network->file(fd);
    if (!file) return failed(EBADF);
    if (file->ready() & EPOLLIN) return 1;
    if (the_network->current_is_dead() || now >= until) return 0;
    the_network->block(until);
  }
}

}  // namespace

std::chrono::steady_clock::time_point std::chrono::steady_clock::now() noexcept {
  if (the_network != nullptr)
    return time_point(duration(hccl_like::fault_simulation::kBegin + the_network->clock()));
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time_point(seconds(time.tv_sec) + nanoseconds(time.tv_nsec));
}

// NOLINTBEGIN
extern "C" {

int socket(int family, int type, int protocol) noexcept {
  if (!inside()) return static_cast<int>(::syscall(SYS_socket, family, type, protocol));
  the_network->step();
  const int process = the_network->current();
  return the_network->open(std::make_shared<Socket>(process, the_network->host_of(process)));
}

int bind(int fd, const sockaddr* address, socklen_t length) noexcept {
  if (!inside()) return static_cast<int>(::syscall(SYS_bind, fd, address, length));
  the_network->step();
  const auto socket = the_network->find<Socket>(fd);
  if (!socket) return failed(EBADF);
  socket->local = endpoint(address);
  if (socket->local.port == 0) socket->local.port = the_network->free_port();
  if (the_network->listens(socket->local.ip, socket->host, socket->local.port))
    return failed(EADDRINUSE);
  return 0;
}

int listen(int fd, int backlog) noexcept {
  if (!inside()) return static_cast<int>(::syscall(SYS_listen, fd, backlog));
  the_network->step();
  const auto socket = the_network->find<Socket>(fd);
  if (!socket) return failed(EBADF);
  if (the_network->current_is_dead()) return 0;
  const int error = the_network->listen(*socket);
  return error == 0 ? 0 : failed(error);
}

int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  if (!inside()) return static_cast<int>(::syscall(SYS_accept4, fd, address, length, flags));
  the_network->step();
  const auto socket = the_network->find<Socket>(fd);
  if (!socket) return failed(EBADF);
  if (socket->backlog.empty()) return failed(EAGAIN);
  const auto arrived = socket->backlog.front();
  socket->backlog.pop_front();
  put(arrived->remote, address, length);
  return the_network->open(arrived);
}

int connect(int fd, const sockaddr* address, socklen_t length) {
  if (!inside()) return static_cast<int>(::syscall(SYS_connect, fd, address, length));
  the_network->step();
  const auto socket = the_network->find<Socket>(fd);
  if (!socket) return failed(EBADF);
  if (the_network->current_is_dead()) return failed(EINPROGRESS);
  return failed(the_network->connect(socket, endpoint(address)));
}

int getsockname(int fd, sockaddr* address, socklen_t* length) noexcept {
  if (!inside()) return static_cast<int>(::syscall(SYS_getsockname, fd, address, length));
  const auto socket = the_network->find<Socket>(fd);
  if (!socket) return failed(EBADF);
  put(socket->local, address, length);
  return 0;
}

int getsockopt(int fd, int level, int option, void* value, socklen_t* length) noexcept {
  if (!inside())
    return static_cast<int>(::syscall(SYS_getsockopt, fd, level, option, value, length));
  const auto socket = the_network->find<Socket>(fd);
  if (!socket) return failed(EBADF);
  if (level == SOL_SOCKET && option == SO_ERROR) {
    const int error = std::exchange(socket->error, 0);
    std::memcpy(value, &error, sizeof error);
    return 0;
  }
  if (level == IPPROTO_TCP && option == TCP_INFO) {
    tcp_info info{};
    info.tcpi_last_ack_recv = static_cast<uint32_t>((now - socket->heard) / kMillisecond);
    if (!socket->unacked.empty())
      info.tcpi_retransmits = static_cast<uint8_t>(attempts(now - socket->unacked.front().second));
    info.tcpi_min_rtt = UINT32_MAX;
    std::memcpy(value, &info, std::min<size_t>(*length, sizeof info));
    return 0;
  }
  return failed(ENOPROTOOPT);
}

int setsockopt(int fd, int level, int option, const void* value, socklen_t length) noexcept {
  if (!inside())
    return static_cast<int>(::syscall(SYS_setsockopt, fd, level, option, value, length));
  const auto socket = the_network->find<Socket>(fd);
  if (!socket) return failed(EBADF);
  int given = 0;
  std::memcpy(&given, value, std::min<size_t>(length, sizeof given));
  if (level == SOL_SOCKET && option == SO_KEEPALIVE) socket->keepalive = given != 0;
  if (level == SOL_SOCKET && option == SO_LINGER) socket->reset_on_close = given != 0;
  if (level == IPPROTO_TCP && option == TCP_KEEPIDLE) socket->idle = given * kSecond;
  if (level == IPPROTO_TCP && option == TCP_KEEPINTVL) socket->interval = given * kSecond;
  if (level == IPPROTO_TCP && option == TCP_KEEPCNT) {
    socket->probes = given;
    the_network->keep_alive(socket);
  }
  return 0;
}

int shutdown(int fd, int how) noexcept {
  if (!inside()) return static_cast<int>(::syscall(SYS_shutdown, fd, how));
  the_network->step();
  const auto socket = the_network->find<Socket>(fd);
  if (!socket) return failed(EBADF);
  if (socket->state == Socket::State::kListening) the_network->refuse(*socket);
  return 0;
}

ssize_t send(int fd, const void* bytes, size_t count, int flags) {
  if (!inside()) return ::syscall(SYS_sendto, fd, bytes, count, flags, nullptr, 0);
  the_network->step();
  const auto socket = the_network->find<Socket>(fd);
  if (!socket) return failed(EBADF);
  return give(socket, std::string(static_cast<const char*>(bytes), count));
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  if (!inside()) return ::syscall(SYS_sendmsg, fd, message, flags);
  the_network->step();
  const auto socket = the_network->find<Socket>(fd);
  if (!socket) return failed(EBADF);
  std::string all;
  for (size_t i = 0; i < message->msg_iovlen; ++i)
    all.append(static_cast<const char*>(message->msg_iov[i].iov_base), message->msg_iov[i].iov_len);
  return give(socket, std::move(all));
}

ssize_t recv(int fd, void* bytes, size_t count, int flags) {
  if (!inside()) return ::syscall(SYS_recvfrom, fd, bytes, count, flags, nullptr, nullptr);
  the_network->step();
  const auto socket = the_network->find<Socket>(fd);
  if (!socket) return failed(EBADF);
  const iovec piece{bytes, count};
  return take(*socket, &piece, 1, flags);
}

ssize_t recvmsg(int fd, msghdr* message, int flags) {
  if (!inside()) return ::syscall(SYS_recvmsg, fd, message, flags);
  the_network->step();
  const auto socket = the_network->find<Socket>(fd);
  if (!socket) return failed(EBADF);
  return take(*socket, message->msg_iov, message->msg_iovlen, flags);
}

int close(int fd) {
  if (the_network == nullptr || fd < hccl_like::fault_simulation::kFirstFd)
    return static_cast<int>(::syscall(SYS_close, fd));
  the_network->close(fd);
  return 0;
}

ssize_t read(int fd, void* bytes, size_t count) {
  if (the_network == nullptr || fd < hccl_like::fault_simulation::kFirstFd)
    return ::syscall(SYS_read, fd, bytes, count);
  const auto event = the_network->find<EventFile>(fd);
  if (!event) return failed(EBADF);
  if (event->count == 0) return failed(EAGAIN);
  std::memcpy(bytes, &event->count, sizeof event->count);
  event->count = 0;
  return sizeof event->count;
}

ssize_t write(int fd, const void* bytes, size_t count) {
  if (the_network == nullptr || fd < hccl_like::fault_simulation::kFirstFd)
    return ::syscall(SYS_write, fd, bytes, count);
  const auto event = the_network->find<EventFile>(fd);
  if (!event) return failed(EBADF);
  uint64_t more = 0;
  std::memcpy(&more, bytes, sizeof more);
  event->count += more;
  the_network->changed(*event);
  return sizeof more;
}

int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list list;
  va_start(list, request);
  void* const value = va_arg(list, void*);
  va_end(list);
  if (!inside()) return static_cast<int>(::syscall(SYS_ioctl, fd, request, value));
  const auto socket = the_network->find<Socket>(fd);
  if (!socket || request != SIOCOUTQ) return failed(EINVAL);
  // A connection that is over keeps the count, as Linux's does.
  const int left = static_cast<int>(socket->unacked_bytes);
  std::memcpy(value, &left, sizeof left);
  return 0;
}

int eventfd(unsigned count, int flags) noexcept {
  if (!inside()) return static_cast<int>(::syscall(SYS_eventfd2, count, flags));
  return the_network->open(std::make_shared<EventFile>(the_network->current()));
}

int epoll_create1(int flags) noexcept {
  if (!inside()) return static_cast<int>(::syscall(SYS_epoll_create1, flags));
  return the_network->open(std::make_shared<EpollFile>(the_network->current()));
}

int epoll_ctl(int set, int operation, int fd, epoll_event* event) noexcept {
  if (!inside()) return static_cast<int>(::syscall(SYS_epoll_ctl, set, operation, fd, event));
  const auto files = the_network->find<EpollFile>(set);
  const auto file = the_network->file(fd);
  if (!files || !file) return the_network->current_is_dead() ? 0 : failed(EBADF);
  if (operation == EPOLL_CTL_DEL)
    files->watched.erase(fd);
  else
    files->watched[fd] = {file, *event};
  return 0;
}

int epoll_wait(int set, epoll_event* events, int most, int timeout) {
  if (!inside()) return static_cast<int>(::syscall(SYS_epoll_wait, set, events, most, timeout));
  the_network->step();
  const auto files = the_network->find<EpollFile>(set);
  if (!files) return failed(EBADF);
  wait_for(set, timeout < 0 ? kForEver : now + timeout * kMillisecond);
  return files->collect(events, most);
}

int poll(pollfd* files, nfds_t count, int timeout) {
  if (!inside()) return static_cast<int>(::syscall(SYS_poll, files, count, timeout));
  the_network->step();
  int ready = 0;
  for (nfds_t i = 0; i < count; ++i) {
    const auto file = the_network->file(files[i].fd);
    const unsigned bits = file ? file->ready() : POLLNVAL;
    files[i].revents = static_cast<short>(
        bits & (static_cast<unsigned>(files[i].events) | POLLERR | POLLHUP | POLLNVAL));
    ready += files[i].revents != 0;
  }
  return ready;
}

int ppoll(pollfd* files, nfds_t count, const timespec* timeout, const sigset_t* signals) {
  if (!inside()) return static_cast<int>(::syscall(SYS_ppoll, files, count, timeout, signals, 8));
  the_network->step();
  return wait_for(files[0].fd, now + timeout->tv_sec * kSecond + timeout->tv_nsec);
}

}  // extern "C"
// NOLINTEND
