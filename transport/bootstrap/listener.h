#pragma once
// Listening sockets: one TCP port at all published addresses, and one abstract UNIX address.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/fd.h"
#include "core/settings/config_values.h"
#include "transport/network/address.h"

namespace hccl_like {

// A new connection and its origin ("10.0.0.5:51234"). The descriptor is empty if none waits.
struct Arrival {
  Fd socket;
  std::string from;
};

// Listens from construction to destruction; non-blocking, close-on-exec.
class Listener {
 public:
  // Listens at exactly these addresses on one port: the first of the range that is free at all of
  // them. Throws kSystem, naming the range, if there is none. A port in TIME_WAIT counts as free.
  // The addresses need not be assigned to an interface yet.
  static std::vector<Listener> tcp(std::span<const Address> addresses, PortRange range);
  static Listener tcp(const Address& address, PortRange range);
  // In the abstract name space: needs no file and ends with its owner. The name is random.
  static Listener unix_abstract();

  // refuse() keeps the address but refuses connections; listen() accepts again. Both throw kSystem.
  // Do not call them on the first of several listeners whose port the system chose: it would lose
  // the port. Do not poll a refusing listener: its socket reports EPOLLHUP.
  void refuse();
  void listen();

  int fd() const { return socket_.get(); }
  // Whether the listener is reachable from this host only.
  bool is_local() const { return local_; }
  uint16_t port() const { return port_; }            // 0 for UNIX
  const std::string& name() const { return name_; }  // without the leading zero byte; empty for TCP

  // Accepts the next connection; skips connections that broke in the queue. If the process is out
  // of descriptors, drops one connection and warns: a connection left in the queue would keep the
  // poller awake. Peers retry.
  Arrival accept();

 private:
  Listener() = default;
  void drop_one();

  // A spare descriptor, closed to accept and drop a connection when descriptors have run out.
  using Reserve = std::shared_ptr<Fd>;
  static std::vector<Listener> at_port(std::span<const Address> addresses, int port,
                                       bool port_is_given, const Reserve& reserve);

  Fd socket_;
  Reserve reserve_;
  bool local_ = true;
  uint16_t port_ = 0;
  std::string name_;
  bool warned_ = false;
};

}  // namespace hccl_like
