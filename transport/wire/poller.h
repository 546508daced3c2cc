#pragma once
// The one place where a process sleeps: an epoll set with a doorbell.
#include <cstdint>
#include <vector>

#include "core/base/deadline.h"
#include "core/base/fd.h"

namespace hccl_like {

// Something with a file descriptor in a Poller. ready() is called on the thread that polls, with
// EPOLL* bits. It may watch and forget descriptors, its own included, but not poll.
class Pollable {
 public:
  virtual ~Pollable() = default;
  virtual void ready(unsigned events) = 0;
};

// Used by one thread at a time, except ring() and doorbell(), which any thread may call.
class Poller {
 public:
  // Throws kSystem when the process has no descriptors left.
  Poller();

  // Watches fd for `events` (EPOLLIN, ...; level-triggered) until forget(fd). `pollable` must
  // outlive that. Throws kSystem.
  void watch(int fd, unsigned events, Pollable& pollable);
  // Changes events and pollable of a watched fd.
  void rewatch(int fd, unsigned events, Pollable& pollable);
  // To be called before fd is closed. Nothing happens if it isn't watched.
  void forget(int fd) noexcept;

  // Looks without sleeping and calls ready() for what it finds; true if anything was. Costs a
  // system call, so callers on the latency path do it only when sockets are watched
  // (sockets() > 0), and rarely for mere liveness. Leaves the doorbell to sleep().
  bool poll();
  // Sleeps until something is ready, the doorbell rings, or the deadline (or 100 ms, whichever is
  // first: callers loop; 200 us while there are nappers). A signal ends it too.
  void sleep(Deadline deadline);

  // Wakes sleep(), now or the next time it is called. Async-signal-safe.
  void ring() const noexcept { ring(doorbell_.get()); }
  // The eventfd behind ring(), to be handed to a peer process that may ring it.
  int doorbell() const noexcept { return doorbell_.get(); }
  // Rings a doorbell of any process. Never blocks; errors mean that nobody is left to wake.
  static void ring(int doorbell) noexcept;

  // How many watched descriptors carry data (as opposed to liveness only).
  size_t sockets() const noexcept { return sockets_; }
  // Whether it costs less to try each of them than to ask the kernel which are ready, and all of
  // them can be tried. Then those who drive need not poll() in every step: wires that wait for
  // bytes look by themselves.
  bool few_sockets() const noexcept { return sockets_ == tried_ && sockets_ <= kFewSockets; }
  void count_sockets(int change) noexcept { sockets_ += static_cast<size_t>(change); }
  // Of wires that try to read, without having been told that there is something, while
  // few_sockets().
  void count_tried_sockets(int change) noexcept {
    count_sockets(change);
    tried_ += static_cast<size_t>(change);
  }
  // How many wires nothing can wake this process for: they must be looked at now and then.
  void count_nappers(int change) noexcept { nappers_ += static_cast<size_t>(change); }

 private:
  static constexpr size_t kFewSockets = 2;

  // The generation tells an event of a forgotten descriptor from one of its successor with the
  // same number.
  struct Watched {
    Pollable* pollable = nullptr;
    uint32_t generation = 0;
  };

  bool wait(int timeout_ms, bool silence_doorbell);
  void control(int operation, int fd, unsigned events, Pollable& pollable);

  Fd epoll_;
  Fd doorbell_;
  std::vector<Watched> watched_;  // by descriptor
  size_t sockets_ = 0;
  size_t tried_ = 0;  // those of wires that read while few_sockets()
  size_t nappers_ = 0;
};

}  // namespace hccl_like
