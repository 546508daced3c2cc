#pragma once
// The two sockets on which peers arrive: one TCP port and one abstract UNIX address per process.
#include <cstdint>
#include <string>

#include "core/config_values.h"
#include "core/fd.h"

namespace hccl_like {

// A connection that has arrived, and from where ("10.0.0.5:51234"). The descriptor is empty if none waits.
struct Arrival {
  Fd socket;
  std::string from;
};

// Listens from construction to destruction; non-blocking, closed on exec.
class Listener {
 public:
  // IPv6 and IPv4 by one socket; IPv4 alone where IPv6 is switched off. Takes the first free port of the range, and
  // throws kSystem naming the range if there is none. A port in TIME_WAIT counts as taken only if somebody listens.
  static Listener tcp(PortRange range);
  // In the abstract name space, where a name needs no file and goes with its owner. The name is random.
  static Listener unix_abstract();

  int fd() const { return socket_.get(); }
  uint16_t port() const { return port_; }            // 0 for UNIX
  const std::string& name() const { return name_; }  // without the leading zero byte; empty for TCP

  // The next connection. Connections that broke while they waited are skipped. Out of descriptors, it drops one and
  // warns: left in the queue it would keep the poller awake for ever, and whoever is serious tries again.
  Arrival accept();

 private:
  Listener() = default;
  void drop_one();

  Fd socket_;
  Fd reserve_;  // given up for a moment to accept and close a connection when descriptors have run out
  uint16_t port_ = 0;
  std::string name_;
  bool warned_ = false;
};

}  // namespace hccl_like
