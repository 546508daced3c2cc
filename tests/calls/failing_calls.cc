#include "tests/calls/failing_calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

namespace hccl_like::calls {
namespace {

constexpr std::array<std::string_view, 18> kNames{
    "socket",    "accept4",      "connect", "bind",          "listen",    "getsockname",
    "send",      "recv",         "sendmsg", "recvmsg",       "mmap",      "fallocate",
    "ftruncate", "memfd_create", "eventfd", "epoll_create1", "epoll_ctl", "epoll_wait"};

std::array<std::atomic<int>, kNames.size()> counts;
std::atomic<bool> armed{false};
std::atomic<size_t> failing{kNames.size()};
std::atomic<int> failing_index{-1}, failing_error{0};

size_t number(std::string_view name) {
  size_t i = 0;
  while (kNames[i] != name) ++i;
  return i;
}

bool fails(size_t which) {
  if (!armed) return false;
  const int index = counts[which].fetch_add(1);
  if (which != failing || index != failing_index) return false;
  errno = failing_error;
  return true;
}

}  // namespace

std::span<const std::string_view> names() { return kNames; }

void arm(std::string_view name, int index, int error) {
  for (auto& one : counts) one = 0;
  failing = number(name);
  failing_index = index;
  failing_error = error;
  armed = true;
}

void disarm() { armed = false; }

int count(std::string_view name) { return counts[number(name)]; }

}  // namespace hccl_like::calls

// NOLINTBEGIN
#define FAILING(result, name, parameters, arguments)                                            \
  extern "C" __attribute__((visibility("default"))) result name parameters {                    \
    static const auto real = reinterpret_cast<result(*) parameters>(::dlsym(RTLD_NEXT, #name)); \
    static const size_t which = hccl_like::calls::number(#name);                                \
    if (hccl_like::calls::fails(which)) return (result)-1;                                      \
    return real arguments;                                                                      \
  }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
FAILING(int, socket, (int a, int b, int c) noexcept, (a, b, c))
FAILING(int, accept4, (int a, sockaddr* b, socklen_t* c, int d), (a, b, c, d))
FAILING(int, connect, (int a, const sockaddr* b, socklen_t c), (a, b, c))
FAILING(int, bind, (int a, const sockaddr* b, socklen_t c) noexcept, (a, b, c))
FAILING(int, listen, (int a, int b) noexcept, (a, b))
FAILING(int, getsockname, (int a, sockaddr* b, socklen_t* c) noexcept, (a, b, c))
FAILING(ssize_t, send, (int a, const void* b, size_t c, int d), (a, b, c, d))
FAILING(ssize_t, recv, (int a, void* b, size_t c, int d), (a, b, c, d))
FAILING(ssize_t, sendmsg, (int a, const msghdr* b, int c), (a, b, c))
FAILING(ssize_t, recvmsg, (int a, msghdr* b, int c), (a, b, c))
FAILING(void*, mmap, (void* a, size_t b, int c, int d, int e, off_t f) noexcept, (a, b, c, d, e, f))
FAILING(int, fallocate, (int a, int b, off_t c, off_t d), (a, b, c, d))
FAILING(int, ftruncate, (int a, off_t b) noexcept, (a, b))
FAILING(int, memfd_create, (const char* a, unsigned b) noexcept, (a, b))
FAILING(int, eventfd, (unsigned a, int b) noexcept, (a, b))
FAILING(int, epoll_create1, (int a) noexcept, (a))
FAILING(int, epoll_ctl, (int a, int b, int c, epoll_event* d) noexcept, (a, b, c, d))
FAILING(int, epoll_wait, (int a, epoll_event* b, int c, int d), (a, b, c, d))
#pragma GCC diagnostic pop
// NOLINTEND
