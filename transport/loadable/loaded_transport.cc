#include "transport/loadable/loaded_transport.h"

#include <algorithm>
#include <array>
#include <bit>
#include <exception>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "transport/wire/remote_memory.h"

namespace hccl_like {
namespace {

class LoadedMemory final : public RemoteMemory {
 public:
  LoadedMemory(const hct_api& api, hct_wire* wire) : api_(api), wire_(wire) {
    static_assert(kSlots == HCT_SLOTS && kReads == HCT_READS);
    static_assert(sizeof(RemotePlace) == sizeof(hct_place) && sizeof(Note) == sizeof(uint64_t));
  }

  std::optional<RemotePlace> show(size_t slot, const std::byte* data, size_t bytes) override {
    hct_place place{};
    if (api_.show(wire_, static_cast<uint32_t>(slot), data, bytes, &place) != 0)
      return std::nullopt;
    return std::bit_cast<RemotePlace>(place);
  }
  void hide(size_t slot) override { api_.hide(wire_, static_cast<uint32_t>(slot)); }
  std::optional<uint32_t> read(const RemotePlace& place, size_t offset,
                               std::span<std::byte> into) override {
    const auto free = std::ranges::find(reads_, Read::kFree);
    if (free == reads_.end()) return std::nullopt;
    const auto number = static_cast<uint32_t>(free - reads_.begin());
    const auto from = std::bit_cast<hct_place>(place);
    const int status = api_.start_read(wire_, number, &from, offset, into.data(), into.size());
    if (status > 0) return std::nullopt;
    *free = status == 0 ? Read::kStarted : Read::kRefused;
    return number;
  }
  State state(uint32_t read) const override {
    if (reads_[read] == Read::kRefused) return State::kFailed;
    switch (api_.read_state(wire_, read)) {
      case HCT_READ_UNDER_WAY:
        return State::kUnderWay;
      case HCT_READ_DONE:
        return State::kDone;
      default:
        return State::kFailed;
    }
  }
  void release(uint32_t read) override { reads_[read] = Read::kFree; }
  void tell(Note note) override { api_.tell(wire_, std::bit_cast<uint64_t>(note)); }
  std::optional<Note> hear() override {
    uint64_t note = 0;
    if (api_.hear(wire_, &note) == 0) return std::nullopt;
    return std::bit_cast<Note>(note);
  }
  bool has_notes() override { return api_.hear(wire_, nullptr) != 0; }
  void progress() override { api_.progress_reads(wire_); }
  void abandon(const char* why) override { api_.abandon_reads(wire_, why); }

 private:
  enum class Read : uint8_t { kFree, kStarted, kRefused };

  const hct_api& api_;
  hct_wire* const wire_;
  std::array<Read, kReads> reads_{};
};

class LoadedWire final : public Wire {
 public:
  LoadedWire(const hct_api& api, hct_wire* wire, std::string_view name, Poller& poller)
      : Wire(std::string(name)), api_(api), wire_(wire), poller_(poller) {
    if (api.show != nullptr) memory_.emplace(api, wire);
  }
  ~LoadedWire() override { api_.close_wire(wire_); }

  size_t write(std::span<const ConstRegion> pieces) override {
    std::array<hct_region, 16> regions;
    const size_t count = std::min(pieces.size(), regions.size());
    for (size_t i = 0; i < count; ++i) regions[i] = {pieces[i].data, pieces[i].bytes};
    return api_.write(wire_, regions.data(), count);
  }
  std::span<const std::byte> peek(size_t want) override {
    const hct_region view = api_.peek(wire_, want);
    return {static_cast<const std::byte*>(view.data), view.bytes};
  }
  void release(size_t bytes) override { api_.release(wire_, bytes); }
  size_t read(std::span<std::byte> into) override {
    return api_.read(wire_, into.data(), into.size());
  }
  const Error* failure() const override {
    if (!failed_)
      if (const char* const why = api_.failure(wire_); why != nullptr)
        failed_ = Error{ErrorCode::kPeerLost, "the " + transport() + " connection is gone: " + why};
    return failed_ ? &*failed_ : nullptr;
  }
  bool flush() override { return api_.flush(wire_) != 0; }
  bool owes() override { return !flush(); }
  bool prepare_sleep(WakeFor wake) override {
    if (wake.bytes) return api_.prepare_sleep(wire_, wake.space ? 1 : 0) != 0;
    if (api_.prepare_sleep_unread != nullptr)
      return api_.prepare_sleep_unread(wire_, wake.space ? 1 : 0) != 0;
    napping_ = true;
    poller_.count_nappers(+1);
    return true;
  }
  void end_sleep() override {
    if (std::exchange(napping_, false)) return poller_.count_nappers(-1);
    api_.end_sleep(wire_);
  }

  WireExtensions extensions() override { return {.remote_memory = memory_ ? &*memory_ : nullptr}; }

  std::string route() const {
    const char* const text = api_.route == nullptr ? nullptr : api_.route(wire_);
    return text == nullptr ? "" : text;
  }

 private:
  const hct_api& api_;
  hct_wire* const wire_;
  Poller& poller_;
  bool napping_ = false;                // for a module without prepare_sleep_unread
  std::optional<LoadedMemory> memory_;  // if the module has entries for it
  mutable std::optional<Error> failed_;
};

// Valid as long as `peer`.
hct_peer as_module_peer(const FarEnd& peer) {
  return {.size = sizeof(hct_peer),
          .id = peer.id.c_str(),
          .hostname = peer.hostname.c_str(),
          .same_host = peer.same_host ? 1 : 0,
          .address = peer.address.data(),
          .address_bytes = peer.address.size()};
}

}  // namespace

LoadedTransport::LoadedTransport(const hct_api& api, const std::string& self_id, Poller& poller)
    : api_(api), name_(api.name), poller_(poller) {
  host_ = {.size = sizeof host_,
           .context = this,
           .watch = watch,
           .forget = forget,
           .ring = ring,
           .nap = nap};
  if (api_.open(&host_, self_id.c_str(), &end_) != 0 || end_ == nullptr)
    throw_error(ErrorCode::kUnsupported, "the transport " + name_ + " does not open: " + reason());
  const hct_region address = api_.address(end_);
  if (address.bytes > kLongestAddress) {
    api_.close(end_);
    throw_error(ErrorCode::kUnsupported, "the transport " + name_ + " has an address of " +
                                             std::to_string(address.bytes) +
                                             " bytes, and 2048 are the most");
  }
  address_.assign(static_cast<const char*>(address.data), address.bytes);
}

LoadedTransport::~LoadedTransport() {
  api_.close(end_);
  for (const auto& [fd, watched] : watched_) {
    poller_.forget(fd);
    poller_.count_sockets(-1);
  }
}

bool LoadedTransport::can_reach(const FarEnd& peer) const {
  const hct_peer raw = as_module_peer(peer);
  return api_.can_reach(end_, &raw) > 0;
}

std::unique_ptr<Wire> LoadedTransport::connect(const FarEnd& peer, WireSide side) {
  const hct_peer raw = as_module_peer(peer);
  hct_wire* wire = nullptr;
  if (api_.connect(end_, &raw, side == WireSide::kConnector ? HCT_CONNECTOR : HCT_ACCEPTOR,
                   &wire) != 0 ||
      wire == nullptr)
    throw_error(ErrorCode::kPeerLost, reason());
  return std::make_unique<LoadedWire>(api_, wire, name_, poller_);
}

std::string LoadedTransport::route(Wire& wire) const {
  const auto* const loaded = dynamic_cast<const LoadedWire*>(&wire);
  return loaded == nullptr ? "" : loaded->route();
}

std::string LoadedTransport::reason() const {
  const char* const text = api_.last_error();
  return text == nullptr || *text == '\0' ? "it gives no reason" : text;
}

int LoadedTransport::watch(void* context, int fd, uint32_t events, void (*ready)(void*, uint32_t),
                           void* argument) noexcept {
  auto& transport = *static_cast<LoadedTransport*>(context);
  try {
    auto& watched = transport.watched_[fd];
    const bool fresh = watched == nullptr;
    if (fresh) watched = std::make_unique<Watched>();
    watched->function = ready;
    watched->argument = argument;
    if (!fresh) {
      transport.poller_.rewatch(fd, events, *watched);
      return 0;
    }
    transport.poller_.watch(fd, events, *watched);
    transport.poller_.count_sockets(+1);
    return 0;
  } catch (const std::exception&) {
    transport.watched_.erase(fd);
    return -1;
  }
}

void LoadedTransport::forget(void* context, int fd) noexcept {
  auto& transport = *static_cast<LoadedTransport*>(context);
  const auto found = transport.watched_.find(fd);
  if (found == transport.watched_.end()) return;
  transport.poller_.forget(fd);
  transport.poller_.count_sockets(-1);
  transport.watched_.erase(found);
}

void LoadedTransport::ring(void* context) noexcept {
  static_cast<LoadedTransport*>(context)->poller_.ring();
}

void LoadedTransport::nap(void* context, int begin) noexcept {
  static_cast<LoadedTransport*>(context)->poller_.count_nappers(begin != 0 ? +1 : -1);
}

}  // namespace hccl_like
