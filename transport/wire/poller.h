#pragma once
// The only place where a process sleeps: an epoll set with a doorbell.
#include <cstdint>
#include <vector>

#include "core/base/deadline.h"
#include "core/base/fd.h"

namespace hccl_like {

// Owner of a file descriptor in a Poller. The polling thread calls ready() with EPOLL* bits.
// ready() may watch and forget descriptors, also its own, but must not poll.
class Pollable {
 public:
  virtual ~Pollable() = default;
  virtual void ready(unsigned events) = 0;
};

// Used by one thread at a time, except ring() and doorbell(): any thread.
class Poller {
 public:
  // Throws kSystem.
  Poller();

  // Watches fd for `events` (EPOLLIN, ...; level-triggered) until forget(fd). `pollable` must stay
  // valid until then. Throws kSystem.
  void watch(int fd, unsigned events, Pollable& pollable);
  void rewatch(int fd, unsigned events, Pollable& pollable);
  // Must precede close(fd). No-op if fd is not watched.
  void forget(int fd) noexcept;

  // Calls ready() for each event without sleeping. True if there was one. Costs a system call: on
  // the latency path only if sockets() > 0, and rarely for liveness. Does not reset the doorbell.
  bool poll();
  // Sleeps until an event, the doorbell, a signal or the deadline, at most 100 ms (200 us while
  // there are nappers). Callers loop.
  void sleep(Deadline deadline);

  // Wakes the current or the next sleep(). Async-signal-safe.
  void ring() const noexcept { ring(doorbell_.get()); }
  // The eventfd of ring(). Peer processes may get it to ring it.
  int doorbell() const noexcept { return doorbell_.get(); }
  // Rings a doorbell of any process. Never blocks. Errors are ignored: the process is gone.
  static void ring(int doorbell) noexcept;

  size_t sockets() const noexcept { return sockets_; }
  // True if all sockets can be read directly and are so few that reads cost less than epoll_wait.
  // Then the driver need not poll() in every step: wires that wait for bytes read by themselves.
  bool few_sockets() const noexcept { return sockets_ == tried_ && sockets_ <= kFewSockets; }
  void count_sockets(int change) noexcept { sockets_ += static_cast<size_t>(change); }
  // For wires that read without a prior event while few_sockets().
  void count_tried_sockets(int change) noexcept {
    count_sockets(change);
    tried_ += static_cast<size_t>(change);
  }
  // Number of wires that cannot wake this process. They need periodic polls.
  void count_nappers(int change) noexcept { nappers_ += static_cast<size_t>(change); }
  size_t nappers() const noexcept { return nappers_; }

 private:
  static constexpr size_t kFewSockets = 2;

  // Distinguishes events of a forgotten descriptor from those of a new one with the same number.
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
  size_t tried_ = 0;  // sockets of wires that read while few_sockets()
  size_t nappers_ = 0;
};

}  // namespace hccl_like
