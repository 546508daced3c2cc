#pragma once
// Wake-ups between processes of one host without a connection: a named datagram socket for each.
#include <sys/socket.h>
#include <sys/un.h>

#include <string>

#include "core/base/fd.h"
#include "transport/wire/poller.h"

namespace hccl_like {

// This process's bell, and ring() for the bells of others. A bell only wakes: spurious or missing
// rings change no result.
class Bell final : private Pollable {
 public:
  // Address of a bell.
  struct Place {
    sockaddr_un address{};
    socklen_t length = 0;
  };
  static Place place(const std::string& name);

  // In the abstract namespace. Wakes the poller, which must outlive the bell. Throws kSystem.
  Bell(const std::string& name, Poller& poller);
  ~Bell() override;

  // Any thread. Never blocks. No-op if the bell rings already or is gone.
  void ring(const Place& place) const noexcept;

 private:
  void ready(unsigned events) override;

  Poller& poller_;
  Fd socket_;
};

}  // namespace hccl_like
