#include "transport/fabric/fabric_transport.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "core/base/error.h"
#include "core/base/log.h"
#include "transport/blocks/block_wire.h"
#include "transport/fabric/fabric_address.h"
#include "transport/fabric/fabric_memory.h"
#include "transport/fabric/fabric_port.h"
#include "transport/network/address.h"

namespace hccl_like {
namespace {

// 64 KiB blocks make 16 MiB between hosts a quarter slower. Unused memory stays untouched.
constexpr BlockShape kFabricShape{.blocks = 8, .block_bytes = 128 << 10};
// ofi_rxm of old libraries sends up to 16 KiB at once. Longer blocks may never arrive there.
constexpr BlockShape kShapeOfOldLibraries{.blocks = 64, .block_bytes = 16'000};

// For each peer. Each card has slots of its own there, which are registered.
constexpr size_t kCardsForBlocks = 2;

// One direction's tag, equal at both ends (FNV-1a). Some providers leave 48 tag bits to users.
uint64_t tag_for(const std::string& from, const std::string& to) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : from + to)
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return hash >> 16;
}

// The process's endpoints of one provider; the first one carries messages.
std::vector<std::unique_ptr<FabricEnd>> open_ends(const FabricLibrary& library,
                                                  std::vector<FabricInfo> infos) {
  std::vector<std::unique_ptr<FabricEnd>> ends;
  for (FabricInfo& info : infos) {
    if (ends.size() == FabricMemory::kMostRails) break;
    ends.push_back(std::make_unique<FabricEnd>(library, std::move(info)));
  }
  return ends;
}

FabricAddress address_of(const std::vector<std::unique_ptr<FabricEnd>>& ends) {
  const fi_info& first = ends.front()->info();
  FabricAddress address{.provider = first.fabric_attr->prov_name,
                        .reads_memory = reads_memory(first),
                        .takes_devices = std::ranges::all_of(
                            ends, [](const auto& end) { return takes_device_memory(end->info()); }),
                        .mends = ends.front()->library().version() >= kFabricVersionThatMends,
                        .ends = {}};
  for (const auto& end : ends) {
    const char* const network = end->info().fabric_attr->name;
    address.ends.push_back({network != nullptr ? network : "", end->address()});
  }
  return address;
}

class FabricTransport final : public Transport {
 public:
  FabricTransport(const FabricLibrary& library, std::vector<FabricInfo> infos, std::string self_id,
                  Poller& poller)
      : ends_(open_ends(library, std::move(infos))),
        own_(address_of(ends_)),
        self_id_(std::move(self_id)),
        poller_(poller),
        address_(own_.pack()) {}

  std::string_view name() const override { return "fabric"; }
  const std::string& address() const override { return address_; }

  bool can_reach(const FarEnd& peer) const override {
    const auto far = FabricAddress::parse(peer.address);
    return far && far->provider == own_.provider &&
           (peer.same_host || reaches_hosts(ends_.front()->info()));
  }

  std::unique_ptr<Wire> connect(const FarEnd& peer, WireSide) override {
    if (!connected_.insert(peer.id).second)
      throw_error(ErrorCode::kUnsupported, "it has been tried with this peer before");
    const FabricAddress far = *FabricAddress::parse(peer.address);
    for (const auto& end : ends_)
      if (!end->is_open()) end->reopen();
    std::vector<FabricRail> rails;
    for (const auto& [own, other] : pair_ends(own_, far))
      rails.push_back({std::make_shared<FabricPeer>(*ends_[own], far.ends[other].name), other});
    const auto ports = [&](BlockShape shape, const char* use, size_t most) {
      std::vector<std::unique_ptr<BlockPort>> made;
      for (const FabricRail& rail : rails)
        if (made.size() < most)
          made.push_back(std::make_unique<FabricPort>(poller_, shape, rail.peer,
                                                      tag_for(self_id_, peer.id + use),
                                                      tag_for(peer.id, self_id_ + use)));
      return made;
    };
    const bool mends = own_.mends && far.mends;
    const BlockShape shape = mends ? kFabricShape : kShapeOfOldLibraries;
    auto blocks = ports(shape, "", mends ? kCardsForBlocks : 1);
    if (own_.reads_memory && far.reads_memory && far.ends.size() <= FabricMemory::kMostRails) {
      std::vector<FabricEnd*> own;
      for (const auto& end : ends_) own.push_back(end.get());
      auto notes = ports(FabricMemory::kNotes, " notes", mends ? rails.size() : 1);
      static_cast<FabricPort&>(*blocks.front())
          .add_memory(std::make_unique<FabricMemory>(own, rails, std::move(notes), peer.hostname,
                                                     mends,
                                                     own_.takes_devices && far.takes_devices));
    }
    return std::make_unique<BlockWire>(std::move(blocks), shape, name(), peer.hostname);
  }

  std::string route(Wire& wire) const override {
    const auto* const memory = static_cast<const FabricMemory*>(wire.extensions().remote_memory);
    const std::string over = memory != nullptr && memory->rails() > 1
                                 ? ", over " + std::to_string(memory->rails()) + " networks"
                                 : "";
    return "by " + own_.provider + " of libfabric " + ends_.front()->library().version_text() +
           (memory == nullptr ? ""
            : memory->reaches_devices()
                ? ", reading long messages from the peer's memory, devices' too"
                : ", reading long messages from the peer's memory") +
           over;
  }

 private:
  const std::vector<std::unique_ptr<FabricEnd>> ends_;
  const FabricAddress own_;
  const std::string self_id_;
  Poller& poller_;
  const std::string address_;
  std::set<std::string> connected_;  // ids; a second wire could not be told from the first
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
  auto infos = choose_providers(library, config.fabric_provider, own, config.fabric_rails,
                                config.fabric_device_memory);
  auto transport = std::make_unique<FabricTransport>(library, std::move(infos), self_id, poller);
  log_info([&] {
    return "fabric: " + library.path + ", address of " +
           std::to_string(transport->address().size()) + " bytes";
  });
  return transport;
}

}  // namespace hccl_like
