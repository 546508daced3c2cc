#include "transport/mesh/report.h"

#include <algorithm>

#include "transport/network/bounded_json.h"

namespace hccl_like {

std::string person(int rank, const ProcessRecord& record) {
  return "rank " + std::to_string(rank) + " (" + record.hostname + ", process " +
         std::to_string(record.pid) + ")";
}

std::string person(int rank, std::string_view record) {
  const auto json = parse_bounded(record);
  ProcessRecord who;
  try {
    who.hostname = json.at("hostname");
    who.pid = json.at("pid");
  } catch (const nlohmann::json::exception&) {
    return "rank " + std::to_string(rank);
  }
  return person(rank, who);
}

std::string network_advice(const Config& config, const std::vector<InterfaceAddress>& own) {
  const auto& transports = config.transports;
  if (std::find(transports.begin(), transports.end(), "tcp") == transports.end()) return "";
  std::string offers;
  for (const InterfaceAddress& one : own)
    if (!one.address.is_loopback())
      offers += (offers.empty() ? "" : ", ") + one.interface + " " + one.address.to_string();
  const std::string interfaces = config.socket_ifname.to_string();
  return ". This rank offers " + (offers.empty() ? "loopback only" : offers) +
         ": HCCL_LIKE_SOCKET_IFNAME (" + (interfaces.empty() ? "not set" : interfaces) +
         ") names the interfaces to use, on every host those of one network; a firewall must let "
         "the ports of HCCL_LIKE_PORT_RANGE (" +
         (config.port_range.any() ? "not set: any" : config.port_range.to_string()) + ") through";
}

}  // namespace hccl_like
