#pragma once
// Selection and order of the network addresses for peers.
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/settings/config_values.h"

namespace hccl_like {

// An IPv4 or IPv6 address without a port.
class Address {
 public:
  // "10.0.0.5", "fd00::5"; nothing if it is neither. No name lookup.
  static std::optional<Address> parse(std::string_view text);
  // For AF_INET and AF_INET6. IPv4-mapped IPv6 (::ffff:10.0.0.5) becomes IPv4.
  static std::optional<Address> of(const sockaddr* socket_address);

  int family() const { return family_; }
  bool is_loopback() const;
  bool is_link_local() const;  // valid on one network segment only
  bool is_unspecified() const;
  // True if the families and the first `prefix` bits are equal.
  bool same_subnet(const Address& other, int prefix) const;
  std::string to_string() const;
  socklen_t with_port(uint16_t port, sockaddr_storage& out) const;

  friend bool operator==(const Address&, const Address&) = default;

 private:
  int family_ = AF_INET;
  uint8_t bytes_[16] = {};
};

// Format "10.0.0.5:4000" or "[fd00::5]:4000".
std::string with_port(const Address& address, uint16_t port);

struct InterfaceAddress {
  std::string interface;
  Address address;
  int prefix = 0;  // prefix length of the subnet
};

// Addresses of all interfaces that are up. Throws kSystem.
std::vector<InterfaceAddress> system_addresses();

// Addresses to publish, best first: physical interfaces in the system's order, then containers,
// bridges and tunnels, loopback last (for peers on the same host). Omits link-local addresses and
// those that the filter rejects. If none is left, throws kMisuse with the names of the interfaces.
std::vector<InterfaceAddress> candidates(const std::vector<InterfaceAddress>& all,
                                         const InterfaceFilter& filter);

// Order of connection attempts: subnets of this host first (no router needed), subnets of virtual
// interfaces last, else as published. Loopback is first with `same_host` (other addresses may be
// closed, see listeners.h), else omitted. Skips malformed addresses.
std::vector<Address> order_for_connecting(const std::vector<std::string>& published,
                                          const std::vector<InterfaceAddress>& own, bool same_host);

// The name of the interface with this address, or "".
std::string interface_of(const Address& address, const std::vector<InterfaceAddress>& own);

// docker0, veth12, virbr0, ...: software interfaces, mostly local to this host.
bool is_virtual_interface(std::string_view name);

// `ours` if set, else GLOO_SOCKET_IFNAME, else NCCL_SOCKET_IFNAME (one INFO line). Null: unset.
InterfaceFilter effective_filter(const InterfaceFilter& ours, const char* gloo, const char* nccl);

}  // namespace hccl_like
