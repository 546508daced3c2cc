#include "transport/network/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <set>

#include "core/base/error.h"
#include "core/base/log.h"

namespace hccl_like {
namespace {

constexpr std::array kVirtualPrefixes{
    "docker", "veth",  "virbr", "br-", "cni",       "flannel", "cali", "podman", "lxc", "lxd",
    "vnet",   "vmnet", "tun",   "tap", "tailscale", "wg",      "zt",   "kube",   "ifb", "dummy",
};

int prefix_bits(const sockaddr* mask) {
  if (mask == nullptr) return 0;
  int bits = 0;
  if (mask->sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, mask, sizeof v4);
    bits = std::popcount(v4.sin_addr.s_addr);
  } else if (mask->sa_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, mask, sizeof v6);
    for (const uint8_t byte : v6.sin6_addr.s6_addr) bits += std::popcount(byte);
  }
  return bits;
}

// Lower classes are tried first.
int publishing_class(const InterfaceAddress& candidate) {
  if (candidate.address.is_loopback()) return 2;
  return is_virtual_interface(candidate.interface) ? 1 : 0;
}

std::string names_of(const std::vector<InterfaceAddress>& all) {
  std::vector<std::string> names;
  for (const auto& one : all)
    if (std::find(names.begin(), names.end(), one.interface) == names.end())
      names.push_back(one.interface);
  return join(names);
}

}  // namespace

std::optional<Address> Address::parse(std::string_view text) {
  if (text.size() >= INET6_ADDRSTRLEN) return std::nullopt;
  const std::string terminated(text);
  in6_addr v6;
  if (::inet_pton(AF_INET6, terminated.c_str(), &v6) == 1) {
    sockaddr_in6 socket_address{};
    socket_address.sin6_family = AF_INET6;
    socket_address.sin6_addr = v6;
    return of(reinterpret_cast<const sockaddr*>(&socket_address));
  }
  Address address;
  if (::inet_pton(AF_INET, terminated.c_str(), address.bytes_) == 1) return address;
  return std::nullopt;
}

std::optional<Address> Address::of(const sockaddr* socket_address) {
  if (socket_address == nullptr) return std::nullopt;
  Address address;
  if (socket_address->sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, socket_address, sizeof v4);
    std::memcpy(address.bytes_, &v4.sin_addr, 4);
    return address;
  }
  if (socket_address->sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 v6;
  std::memcpy(&v6, socket_address, sizeof v6);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    std::memcpy(address.bytes_, &v6.sin6_addr.s6_addr[12], 4);
    return address;
  }
  address.family_ = AF_INET6;
  std::memcpy(address.bytes_, &v6.sin6_addr, 16);
  return address;
}

bool Address::is_loopback() const {
  if (family_ == AF_INET) return bytes_[0] == 127;
  return std::all_of(bytes_, bytes_ + 15, [](uint8_t byte) { return byte == 0; }) &&
         bytes_[15] == 1;
}

bool Address::is_link_local() const {
  if (family_ == AF_INET) return bytes_[0] == 169 && bytes_[1] == 254;
  return bytes_[0] == 0xfe && (bytes_[1] & 0xc0) == 0x80;
}

bool Address::is_unspecified() const {
  return std::all_of(bytes_, bytes_ + 16, [](uint8_t byte) { return byte == 0; });
}

bool Address::same_subnet(const Address& other, int prefix) const {
  if (family_ != other.family_) return false;
  for (int bit = 0; bit < prefix; bit += 8) {
    const int bits = std::min(8, prefix - bit);
    const int mask = (0xff << (8 - bits)) & 0xff;
    if (((bytes_[bit / 8] ^ other.bytes_[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

std::string Address::to_string() const {
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(family_, bytes_, text, sizeof text);
  return text;
}

socklen_t Address::with_port(uint16_t port, sockaddr_storage& out) const {
  out = {};
  if (family_ == AF_INET) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&v4.sin_addr, bytes_, 4);
    std::memcpy(&out, &v4, sizeof v4);
    return sizeof v4;
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  std::memcpy(&v6.sin6_addr, bytes_, 16);
  std::memcpy(&out, &v6, sizeof v6);
  return sizeof v6;
}

std::string with_port(const Address& address, uint16_t port) {
  const std::string text = address.to_string();
  return (address.family() == AF_INET6 ? "[" + text + "]" : text) + ":" + std::to_string(port);
}

std::vector<InterfaceAddress> system_addresses() {
  ifaddrs* head = nullptr;
  if (::getifaddrs(&head) != 0) throw_system("cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(head, ::freeifaddrs);

  std::vector<InterfaceAddress> all;
  for (const ifaddrs* one = head; one != nullptr; one = one->ifa_next) {
    if ((one->ifa_flags & IFF_UP) == 0) continue;
    const auto address = Address::of(one->ifa_addr);
    if (address) all.push_back({one->ifa_name, *address, prefix_bits(one->ifa_netmask)});
  }
  return all;
}

std::vector<InterfaceAddress> candidates(const std::vector<InterfaceAddress>& all,
                                         const InterfaceFilter& filter) {
  std::vector<InterfaceAddress> usable;
  for (const auto& one : all)
    if (filter.matches(one.interface) && !one.address.is_link_local() &&
        !one.address.is_unspecified())
      usable.push_back(one);
  if (usable.empty() && !filter.names.empty())
    throw_misuse("HCCL_LIKE_SOCKET_IFNAME=" + filter.to_string() +
                 " leaves no network interface with an address; there are: " + names_of(all));
  std::stable_sort(usable.begin(), usable.end(), [](const auto& a, const auto& b) {
    return publishing_class(a) < publishing_class(b);
  });
  return usable;
}

std::vector<Address> order_for_connecting(const std::vector<std::string>& published,
                                          const std::vector<InterfaceAddress>& own,
                                          bool same_host) {
  // 0: loopback, 1: subnet of a physical interface, 2: as published, 3: subnet of a virtual
  // interface, which every host may have with the same numbers (docker's 172.17.0.0/16).
  const auto rank_of = [&](const Address& address) {
    if (address.is_loopback()) return 0;
    int best = 2;
    for (const auto& one : own) {
      if (one.prefix == 0 || !one.address.same_subnet(address, one.prefix)) continue;
      if (!is_virtual_interface(one.interface)) return 1;
      best = 3;
    }
    return best;
  };
  std::vector<Address> ordered;
  for (const auto& text : published) {
    const auto address = Address::parse(text);
    if (!address || (address->is_loopback() && !same_host)) continue;
    if (std::find(ordered.begin(), ordered.end(), *address) == ordered.end())
      ordered.push_back(*address);
  }
  std::stable_sort(ordered.begin(), ordered.end(),
                   [&](const Address& a, const Address& b) { return rank_of(a) < rank_of(b); });
  return ordered;
}

std::string interface_of(const Address& address, const std::vector<InterfaceAddress>& own) {
  for (const auto& one : own)
    if (one.address == address) return one.interface;
  return "";
}

bool is_virtual_interface(std::string_view name) {
  return std::any_of(kVirtualPrefixes.begin(), kVirtualPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

InterfaceFilter effective_filter(const InterfaceFilter& ours, const char* gloo, const char* nccl) {
  if (!ours.names.empty()) return ours;
  const auto take = [](const char* name, const char* value, bool exact) {
    InterfaceFilter filter =
        InterfaceFilter::parse((exact ? std::string("=") : std::string()) + value);
    log_info(std::string("network interfaces limited by ") + name + "=" + value +
             ", because HCCL_LIKE_SOCKET_IFNAME is not set");
    return filter;
  };
  // Gloo takes only plain names. Some users set it in NCCL's syntax, which is then parsed as such.
  if (gloo != nullptr && *gloo != 0)
    return take("GLOO_SOCKET_IFNAME", gloo, *gloo != '^' && *gloo != '=');
  if (nccl != nullptr && *nccl != 0) return take("NCCL_SOCKET_IFNAME", nccl, false);
  return ours;
}

}  // namespace hccl_like
