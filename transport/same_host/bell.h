#pragma once
// How processes of one host wake each other without a connection: a datagram socket with a name of
// its own each.
#include <sys/socket.h>
#include <sys/un.h>

#include <string>

#include "core/base/fd.h"
#include "transport/wire/poller.h"

namespace hccl_like {

// This process's, and the way to ring those of others. Nothing but wake-ups depends on it: whoever
// rings without need, or holds it up, changes no result.
class Bell final : private Pollable {
 public:
  // Where a bell hangs.
  struct Place {
    sockaddr_un address{};
    socklen_t length = 0;
  };
  static Place place(const std::string& name);

  // In the abstract name space. The poller, which it wakes, must outlive it. Throws kSystem.
  Bell(const std::string& name, Poller& poller);
  ~Bell() override;

  // Any thread; never blocks. A bell that rings already, or is gone, needs no more.
  void ring(const Place& place) const noexcept;

 private:
  void ready(unsigned events) override;

  Poller& poller_;
  Fd socket_;
};

}  // namespace hccl_like
