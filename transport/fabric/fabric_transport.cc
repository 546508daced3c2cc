#include "transport/fabric/fabric_transport.h"

#include <cstdint>
#include <cstdlib>

#include "core/error.h"
#include "core/log.h"
#include "transport/address.h"
#include "transport/blocks/block_wire.h"
#include "transport/fabric/fabric_port.h"

namespace hccl_like {
namespace {

// Between two hosts 16 MiB take a quarter longer with blocks half as large. Memory that no message needed is never touched.
constexpr BlockShape kShape{.blocks = 8, .block_bytes = 128 << 10};

// Of what goes from one end to another; both compute it (FNV-1a). Some providers leave 48 bits of a tag to the user.
uint64_t tag_for(const std::string& from, const std::string& to) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : from + to)
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return hash >> 16;
}

class FabricTransport final : public Transport {
 public:
  FabricTransport(const FabricLibrary& library, FabricInfo info, std::string self_id,
                  Poller& poller)
      : end_(library, std::move(info)),
        provider_(end_.info().fabric_attr->prov_name),
        self_id_(std::move(self_id)),
        poller_(poller),
        address_(provider_ + " " + end_.address()) {}

  std::string_view name() const override { return "fabric"; }
  const std::string& address() const override { return address_; }

  bool can_reach(const FarEnd& peer) const override {
    return peer.address.starts_with(provider_ + " ") &&
           (peer.same_host || reaches_hosts(end_.info()));
  }

  std::unique_ptr<Wire> connect(const FarEnd& peer, WireSide) override {
    if (!connected_.insert(peer.id).second)
      throw_error(ErrorCode::kUnsupported, "it has been tried with this peer before");
    const fi_addr_t address = end_.insert(peer.address.substr(provider_.size() + 1));
    auto port = std::make_unique<FabricPort>(
        end_, poller_, kShape, address, tag_for(self_id_, peer.id), tag_for(peer.id, self_id_));
    return std::make_unique<BlockWire>(std::move(port), kShape, name(), peer.hostname);
  }

  std::string route(const Wire&) const override {
    return "by " + provider_ + " of libfabric " + end_.library().version_text();
  }

 private:
  FabricEnd end_;
  const std::string provider_, self_id_;
  Poller& poller_;
  const std::string address_;
  std::set<std::string> connected_;  // ids: a second wire could not be told from the first
};

}  // namespace

std::unique_ptr<Transport> open_fabric(const Config& config, const std::vector<std::string>& hints,
                                       const std::string& self_id, Poller& poller) {
  const FabricLibrary& library = load_fabric(config.fabric_library, hints);
  const auto filter = effective_filter(config.socket_ifname, std::getenv("GLOO_SOCKET_IFNAME"),
                                       std::getenv("NCCL_SOCKET_IFNAME"));
  std::vector<std::string> own;
  for (const auto& one : candidates(system_addresses(), filter))
    own.push_back(one.address.to_string());
  FabricInfo info = choose_provider(library, config.fabric_provider, own);
  auto transport = std::make_unique<FabricTransport>(library, std::move(info), self_id, poller);
  log_info([&] {
    return "fabric: " + library.path + ", address of " +
           std::to_string(transport->address().size()) + " bytes";
  });
  return transport;
}

}  // namespace hccl_like
