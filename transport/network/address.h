#pragma once
// Which addresses of this host peers may try, and in which order.
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/settings/config_values.h"

namespace hccl_like {

// An IPv4 or IPv6 address without a port. A value.
class Address {
 public:
  // "10.0.0.5", "fd00::5"; nothing if it is neither. Never looks a name up.
  static std::optional<Address> parse(std::string_view text);
  // Of AF_INET and AF_INET6 socket addresses; an IPv4 address in IPv6 clothing (::ffff:10.0.0.5)
  // becomes IPv4.
  static std::optional<Address> of(const sockaddr* socket_address);

  int family() const { return family_; }
  bool is_loopback() const;
  bool is_link_local() const;  // means something on one cable only
  bool is_unspecified() const;
  // True if the first `prefix` bits are the same (and the family).
  bool same_subnet(const Address& other, int prefix) const;
  std::string to_string() const;
  // Fills `out` and returns its length.
  socklen_t with_port(uint16_t port, sockaddr_storage& out) const;

  friend bool operator==(const Address&, const Address&) = default;

 private:
  int family_ = AF_INET;
  uint8_t bytes_[16] = {};
};

// "10.0.0.5:4000", "[fd00::5]:4000".
std::string with_port(const Address& address, uint16_t port);

// One address of one network interface of this host.
struct InterfaceAddress {
  std::string interface;
  Address address;
  int prefix = 0;  // bits of the subnet
};

// Those of the interfaces that are up. Throws kSystem.
std::vector<InterfaceAddress> system_addresses();

// The ones to publish, best first: real interfaces in the system's order, then those of containers,
// bridges and tunnels, loopback last (peers on the same host use it). Link-local addresses are left
// out, and what the filter refuses. Throws kMisuse naming the interfaces there are if the filter
// leaves none.
std::vector<InterfaceAddress> candidates(const std::vector<InterfaceAddress>& all,
                                         const InterfaceFilter& filter);

// The order in which a peer's addresses are tried: those in a subnet of ours first (they need no
// router and no guess), virtual interfaces' subnets behind real ones', else as published. On the
// same host loopback goes first: others may be shut there (listeners.h). Without `same_host` it is
// left out: it would reach ourselves. Text that is no address is left out too.
std::vector<Address> order_for_connecting(const std::vector<std::string>& published,
                                          const std::vector<InterfaceAddress>& own, bool same_host);

// The name of the interface that has this address, or "" if none.
std::string interface_of(const Address& address, const std::vector<InterfaceAddress>& own);

// docker0, veth12, virbr0, ...: made by software for this host alone, mostly.
bool is_virtual_interface(std::string_view name);

// Our own setting if it is given, else GLOO_SOCKET_IFNAME's, else NCCL_SOCKET_IFNAME's (with one
// INFO line). The two are other programs' settings that people have set for the same purpose; null
// means unset.
InterfaceFilter effective_filter(const InterfaceFilter& ours, const char* gloo, const char* nccl);

}  // namespace hccl_like
