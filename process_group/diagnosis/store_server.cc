#include "process_group/diagnosis/store_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string>
#include <system_error>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "core/base/log.h"

namespace hccl_like {
namespace {

// Port of a TCP peer; 0 for other descriptors.
uint16_t peer_port(int descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return 0;
}

// End of stream or reset.
bool is_closed(int descriptor) {
  char byte;
  const ssize_t got = ::recv(descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno == ECONNRESET);
}

}  // namespace

// TCPStore hides its socket, so this scans the sockets of the process by port. An open connection
// counts as this store's, even if it may belong to another store on the same port. A connection
// that was reset has no peer any more, and is not found.
bool server_has_gone(c10d::Store& store) {
  const auto* const tcp = dynamic_cast<c10d::TCPStore*>(&store);
  if (tcp == nullptr) return false;
  std::error_code unreadable;
  bool gone = true;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", unreadable)) {
    const std::string name = entry.path().filename().string();
    int descriptor = -1;
    std::from_chars(name.data(), name.data() + name.size(), descriptor);
    if (descriptor < 0 || peer_port(descriptor) != tcp->getPort()) continue;
    gone = gone && is_closed(descriptor);
  }
  if (unreadable) return false;
  static std::atomic<bool> told{false};
  if (gone && !told.exchange(true))
    log_warn("the store at " + tcp->getHost() + ":" + std::to_string(tcp->getPort()) +
             " has ended with the process that served it; ranks can no longer tell each other "
             "where they "
             "are");
  return gone;
}

}  // namespace hccl_like
