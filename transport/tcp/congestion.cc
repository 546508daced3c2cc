#include "transport/tcp/congestion.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <fstream>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace hccl_like {
namespace {

// Longer round-trip times leave the machine room.
constexpr uint32_t kFarMicroseconds = 2000;
constexpr const char* kNear = "reno";

bool set(int socket, const std::string& name) {
  return ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                      static_cast<socklen_t>(name.size())) == 0;
}

std::string get(int socket) {
  std::array<char, 16> name{};
  socklen_t length = name.size();
  if (::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) != 0) return "";
  return std::string(name.data());
}

bool for_wide_areas(const std::string& name) { return name == "cubic" || name.starts_with("bbr"); }

uint32_t least_round_trip(int socket) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return 0;
  return info.tcpi_min_rtt == UINT32_MAX ? 0 : info.tcpi_min_rtt;
}

std::string available() {
  std::string names;
  std::getline(std::ifstream("/proc/sys/net/ipv4/tcp_allowed_congestion_control"), names);
  return names;
}

}  // namespace

Congestion::Congestion(const std::string& setting) {
  if (setting == "system" || setting.empty()) return;
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) socket.reset(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (setting != "auto") {
    if (socket.valid() && !set(socket.get(), setting))
      throw_misuse("HCCL_LIKE_TCP_CONGESTION=" + setting + ": " + errno_text(errno) +
                   "; write auto, system or one of what this host allows: " + available());
    wanted_ = setting;
    return;
  }
  const std::string system = socket.valid() ? get(socket.get()) : "";
  if (!for_wide_areas(system) || !set(socket.get(), kNear)) return;
  wanted_ = kNear;
  system_ = system;
}

void Congestion::prepare(int socket) const {
  if (!wanted_.empty()) set(socket, wanted_);
}

void Congestion::settle(int socket) const {
  if (!system_.empty() && least_round_trip(socket) > kFarMicroseconds) set(socket, system_);
}

}  // namespace hccl_like
