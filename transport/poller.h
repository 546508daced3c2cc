#pragma once
// The one place where a process sleeps: an epoll set with a doorbell.
#include <atomic>

#include "core/deadline.h"
#include "core/fd.h"

namespace hccl_like {

// Something with a file descriptor in a Poller. ready() is called on the thread that polls, with EPOLL* bits.
class Pollable {
 public:
  virtual ~Pollable() = default;
  virtual void ready(unsigned events) = 0;
};

// Used by one thread at a time, except ring() and doorbell(), which any thread may call.
class Poller {
 public:
  Poller();

  // Watches fd for `events` (EPOLLIN, ...; level-triggered) until forget(fd). `pollable` must outlive that.
  void watch(int fd, unsigned events, Pollable& pollable);
  void rewatch(int fd, unsigned events, Pollable& pollable);
  void forget(int fd);

  // Looks without sleeping and calls ready() for what it finds; true if anything was. Costs a system call, so callers
  // on the latency path do it only when sockets are watched (sockets() > 0), and rarely for mere liveness.
  bool poll();
  // Sleeps until something is ready, the doorbell rings, or the deadline (or 100 ms, whichever is first: callers loop).
  void sleep(Deadline deadline);

  // Wakes sleep(), now or the next time it is called. Async-signal-safe.
  void ring();
  // The eventfd behind ring(), to be handed to a peer process that may ring it.
  int doorbell() const { return doorbell_.get(); }
  // How many watched descriptors carry data (as opposed to liveness only).
  size_t sockets() const { return sockets_; }
  void count_sockets(int change) { sockets_ += change; }

 private:
  Fd epoll_;
  Fd doorbell_;
  size_t sockets_ = 0;
};

}  // namespace hccl_like
