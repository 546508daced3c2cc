#include "tests/calls/failing_calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>

namespace hccl_like::calls {

using std::literals::operator""sv;

namespace {

constexpr std::array kNames{"socket"sv,          "accept4"sv,       "connect"sv, "bind"sv,
                            "listen"sv,          "getsockname"sv,   "send"sv,    "recv"sv,
                            "sendmsg"sv,         "recvmsg"sv,       "read"sv,    "write"sv,
                            "pread"sv,           "poll"sv,          "mmap"sv,    "fallocate"sv,
                            "ftruncate"sv,       "memfd_create"sv,  "eventfd"sv, "epoll_create1"sv,
                            "epoll_ctl"sv,       "epoll_wait"sv,    "futex"sv,   "pidfd_open"sv,
                            "set_robust_list"sv, "pthread_create"sv};

std::array<std::atomic<int>, kNames.size()> counts;
std::atomic<bool> armed{false};
std::atomic<size_t> failing{kNames.size()};
std::atomic<int> failing_index{-1}, failing_error{0};

size_t number(std::string_view name) {
  size_t i = 0;
  while (kNames[i] != name) ++i;
  return i;
}

enum class Now { kAsAlways, kFails, kShort };

Now next(size_t which) {
  if (!armed) return Now::kAsAlways;
  const int index = counts[which].fetch_add(1);
  if (which != failing || failing_index < 0 || index < failing_index) return Now::kAsAlways;
  if (index > failing_index && failing_error != kNoMore) return Now::kAsAlways;
  if (failing_error == kShort) return Now::kShort;
  errno = failing_error == kNoMore ? EAGAIN : failing_error.load();
  return Now::kFails;
}

bool fails(size_t which) { return next(which) == Now::kFails; }

size_t half(size_t bytes) { return (bytes + 1) / 2; }

// A message with the first part of what it was; the rest as it is.
struct Half {
  explicit Half(const msghdr& whole) : message(whole) {
    if (whole.msg_iovlen == 0) return;
    first = whole.msg_iov[0];
    first.iov_len = half(first.iov_len);
    message.msg_iov = &first;
    message.msg_iovlen = 1;
  }
  iovec first{};
  msghdr message;
};

}  // namespace

std::span<const int> errors(std::string_view name) {
  static constexpr std::array kAll{EINTR, EMFILE, ENOMEM, EAGAIN, ECONNABORTED, kShort};
  static constexpr std::array kOfFutex{EINTR, EAGAIN};
  static constexpr std::array kOfThreads{EAGAIN, kNoMore};
  // Those that move bytes come last, and may move fewer of them.
  static constexpr std::array kBytes{"send"sv,    "recv"sv, "sendmsg"sv,
                                     "recvmsg"sv, "read"sv, "pread"sv};
  if (name == "futex") return kOfFutex;
  if (name == "pthread_create") return kOfThreads;
  // To eventfds, which fail in no other way.
  if (name == "write") return std::span(kAll).first(1);
  const bool moves = std::ranges::find(kBytes, name) != kBytes.end();
  return std::span(kAll).first(kAll.size() - (moves ? 0 : 1));
}

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
using hccl_like::calls::Half, hccl_like::calls::half, hccl_like::calls::fails,
    hccl_like::calls::number;

#define FAILING(result, name, parameters, arguments)                                            \
  extern "C" __attribute__((visibility("default"))) result name parameters {                    \
    static const auto real = reinterpret_cast<result(*) parameters>(::dlsym(RTLD_NEXT, #name)); \
    static const size_t which = number(#name);                                                  \
    if (fails(which)) return (result) - 1;                                                      \
    return real arguments;                                                                      \
  }
// The same where `fewer` is the call with fewer bytes.
#define SHORTENING(name, parameters, arguments, fewer)                                           \
  extern "C" __attribute__((visibility("default"))) ssize_t name parameters {                    \
    static const auto real = reinterpret_cast<ssize_t(*) parameters>(::dlsym(RTLD_NEXT, #name)); \
    static const size_t which = number(#name);                                                   \
    switch (hccl_like::calls::next(which)) {                                                     \
      case hccl_like::calls::Now::kFails:                                                        \
        return -1;                                                                               \
      case hccl_like::calls::Now::kShort:                                                        \
        return fewer;                                                                            \
      case hccl_like::calls::Now::kAsAlways:                                                     \
        break;                                                                                   \
    }                                                                                            \
    return real arguments;                                                                       \
  }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
FAILING(int, socket, (int a, int b, int c) noexcept, (a, b, c))
FAILING(int, accept4, (int a, sockaddr* b, socklen_t* c, int d), (a, b, c, d))
FAILING(int, connect, (int a, const sockaddr* b, socklen_t c), (a, b, c))
FAILING(int, bind, (int a, const sockaddr* b, socklen_t c) noexcept, (a, b, c))
FAILING(int, listen, (int a, int b) noexcept, (a, b))
FAILING(int, getsockname, (int a, sockaddr* b, socklen_t* c) noexcept, (a, b, c))
SHORTENING(send, (int a, const void* b, size_t c, int d), (a, b, c, d), real(a, b, half(c), d))
SHORTENING(recv, (int a, void* b, size_t c, int d), (a, b, c, d), real(a, b, half(c), d))
SHORTENING(read, (int a, void* b, size_t c), (a, b, c), real(a, b, c > 8 ? half(c) : c))
SHORTENING(pread, (int a, void* b, size_t c, off_t d), (a, b, c, d), real(a, b, half(c), d))
SHORTENING(sendmsg, (int a, const msghdr* b, int c), (a, b, c), [&] {
  const Half part(*b);
  return real(a, &part.message, c);
}())
SHORTENING(recvmsg, (int a, msghdr* b, int c), (a, b, c), [&] {
  Half part(*b);
  const ssize_t got = real(a, &part.message, c);
  b->msg_controllen = part.message.msg_controllen;
  b->msg_flags = part.message.msg_flags;
  return got;
}())
FAILING(ssize_t, write, (int a, const void* b, size_t c), (a, b, c))
FAILING(int, poll, (pollfd * a, nfds_t b, int c), (a, b, c))
FAILING(void*, mmap, (void* a, size_t b, int c, int d, int e, off_t f) noexcept, (a, b, c, d, e, f))
FAILING(int, fallocate, (int a, int b, off_t c, off_t d), (a, b, c, d))
FAILING(int, ftruncate, (int a, off_t b) noexcept, (a, b))
FAILING(int, memfd_create, (const char* a, unsigned b) noexcept, (a, b))
FAILING(int, eventfd, (unsigned a, int b) noexcept, (a, b))
FAILING(int, epoll_create1, (int a) noexcept, (a))
FAILING(int, epoll_ctl, (int a, int b, int c, epoll_event* d) noexcept, (a, b, c, d))
FAILING(int, epoll_wait, (int a, epoll_event* b, int c, int d), (a, b, c, d))
#pragma GCC diagnostic pop

// This one returns its error.
extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* a,
                                                                     const pthread_attr_t* b,
                                                                     void* (*c)(void*),
                                                                     void* d) noexcept {
  static const auto real =
      reinterpret_cast<decltype(&::pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  static const size_t which = number("pthread_create");
  return fails(which) ? errno : real(a, b, c, d);
}

// Those that the C library has no function for, or is asked past it: std::atomic's waits. Its own
// locks are not among them.
extern "C" __attribute__((visibility("default"))) long syscall(long what, ...) noexcept {
  static const auto real = reinterpret_cast<long (*)(long, ...)>(::dlsym(RTLD_NEXT, "syscall"));
  static const std::array kKnown{std::pair(long{SYS_futex}, number("futex")),
                                 std::pair(long{SYS_pidfd_open}, number("pidfd_open")),
                                 std::pair(long{SYS_set_robust_list}, number("set_robust_list"))};
  std::va_list list;
  va_start(list, what);
  std::array<long, 6> given;
  for (long& one : given) one = va_arg(list, long);
  va_end(list);
  // To wake somebody never fails: who is not woken would sleep for ever.
  const bool wakes = what == SYS_futex && (given[1] & FUTEX_CMD_MASK) == FUTEX_WAKE;
  for (const auto& [one, which] : kKnown)
    if (one == what && !wakes && fails(which)) return -1;
  return real(what, given[0], given[1], given[2], given[3], given[4], given[5]);
}
// NOLINTEND
