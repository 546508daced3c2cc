#include "transport/wire/poller.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "core/base/error.h"

namespace hccl_like {
namespace {

constexpr int kLongestSleepMs = 100;
// Short compared to the latency of networks without wake-ups, long compared to a poll.
constexpr long kNapNs = 200'000;

uint64_t event_key(int fd, uint32_t generation) {
  return (uint64_t{generation} << 32) | static_cast<uint32_t>(fd);
}

}  // namespace

Poller::Poller()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), doorbell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_.valid()) throw_system("cannot create an epoll set");
  if (!doorbell_.valid()) throw_system("cannot create an eventfd");
  epoll_event event{.events = EPOLLIN, .data = {.u64 = event_key(doorbell_.get(), 0)}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, doorbell_.get(), &event) != 0)
    throw_system("cannot watch the doorbell");
}

void Poller::watch(int fd, unsigned events, Pollable& pollable) {
  control(EPOLL_CTL_ADD, fd, events, pollable);
}

void Poller::rewatch(int fd, unsigned events, Pollable& pollable) {
  control(EPOLL_CTL_MOD, fd, events, pollable);
}

void Poller::control(int operation, int fd, unsigned events, Pollable& pollable) {
  const auto index = static_cast<size_t>(fd);
  if (fd >= 0 && index >= watched_.size()) watched_.resize(index + 1);
  const uint32_t generation = fd >= 0 ? watched_[index].generation : 0;
  epoll_event event{.events = events, .data = {.u64 = event_key(fd, generation)}};
  if (::epoll_ctl(epoll_.get(), operation, fd, &event) != 0)
    throw_system("cannot watch descriptor " + std::to_string(fd));
  watched_[index].pollable = &pollable;
}

void Poller::forget(int fd) noexcept {
  const auto index = static_cast<size_t>(fd);
  if (fd < 0 || index >= watched_.size() || watched_[index].pollable == nullptr) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  watched_[index].pollable = nullptr;
  ++watched_[index].generation;
}

bool Poller::poll() { return wait(0, false); }

void Poller::sleep(Deadline deadline) {
  const int remaining = deadline.remaining();
  if (nappers_ > 0 && remaining != 0) {
    // epoll_wait has millisecond resolution, so ppoll() waits for the epoll set.
    pollfd set{epoll_.get(), POLLIN, 0};
    const timespec nap{0, kNapNs};
    ::ppoll(&set, 1, &nap, nullptr);
    wait(0, true);
    return;
  }
  wait(remaining < 0 ? kLongestSleepMs : std::min(remaining, kLongestSleepMs), true);
}

bool Poller::wait(int timeout_ms, bool silence_doorbell) {
  std::array<epoll_event, 64> events;
  const int count =
      ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  bool any = false;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    const int fd = static_cast<int>(event.data.u64 & 0xffffffffu);
    if (fd == doorbell_.get()) {
      uint64_t rings;
      if (silence_doorbell) (void)!::read(fd, &rings, sizeof rings);
      continue;
    }
    // An earlier ready() of this loop may have forgotten the descriptor.
    const Watched watched = watched_[static_cast<size_t>(fd)];
    if (watched.pollable == nullptr || watched.generation != event.data.u64 >> 32) continue;
    watched.pollable->ready(event.events);
    any = true;
  }
  return any;
}

void Poller::ring(int doorbell) noexcept {
  const int saved = errno;
  const uint64_t one = 1;
  // Retry on EINTR: a thread may wait for this ring without a timeout.
  while (::write(doorbell, &one, sizeof one) < 0 && errno == EINTR) {
  }
  errno = saved;
}

}  // namespace hccl_like
