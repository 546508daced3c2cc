#pragma once
// The sockets on which peers arrive: one TCP port, at each address that peers are told, and one
// abstract UNIX address per process.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/fd.h"
#include "core/settings/config_values.h"
#include "transport/network/address.h"

namespace hccl_like {

// A connection that has arrived, and from where ("10.0.0.5:51234"). The descriptor is empty if none
// waits.
struct Arrival {
  Fd socket;
  std::string from;
};

// Listens from construction to destruction; non-blocking, closed on exec.
class Listener {
 public:
  // At each of the addresses and at no other, on one port: the first of the range that is free at
  // all of them. Throws kSystem naming the range if there is none. A port in TIME_WAIT counts as
  // taken only if somebody listens. An address that an interface is about to get will do.
  static std::vector<Listener> tcp(std::span<const Address> addresses, PortRange range);
  static Listener tcp(const Address& address, PortRange range);
  // In the abstract name space, where a name needs no file and goes with its owner. The name is
  // random.
  static Listener unix_abstract();

  // Keeps the address, and refuses whoever connects; and takes connections again. Throw kSystem.
  // Not for the first of several whose port the system chose: it would lose it. While it refuses it
  // must not be polled: its socket reads as hung up.
  void refuse();
  void listen();

  int fd() const { return socket_.get(); }
  // Whether only this host can reach it.
  bool is_local() const { return local_; }
  uint16_t port() const { return port_; }            // 0 for UNIX
  const std::string& name() const { return name_; }  // without the leading zero byte; empty for TCP

  // The next connection. Connections that broke while they waited are skipped. Out of descriptors,
  // it drops one and warns: left in the queue it would keep the poller awake for ever, and whoever
  // is serious tries again.
  Arrival accept();

 private:
  Listener() = default;
  void drop_one();

  // Given up for a moment to accept and close a connection when descriptors have run out.
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
