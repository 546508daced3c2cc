#pragma once
// Reads a peer's memory with libfabric (fi_read) over one or several cards.
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/deadline.h"
#include "transport/blocks/block_wire.h"
#include "transport/fabric/fabric_end.h"
#include "transport/fabric/fabric_port.h"
#include "transport/wire/remote_memory.h"

namespace hccl_like {

// One of this process's endpoints paired with the peer's endpoint number `far`.
struct FabricRail {
  std::shared_ptr<FabricPeer> peer;
  size_t far = 0;
};

// Reads alternate over the rails that work. A read that fails on one rail, or is silent there while
// the peer answers over another one, starts again, on another rail if there is one.
class FabricMemory final : public RemoteMemory {
 public:
  // Per process: the number of keys that fit into a RemotePlace.
  static constexpr size_t kMostRails = 4;
  // The shape of the port for notes.
  static constexpr BlockShape kNotes{.blocks = 8, .block_bytes = 64};

  // `notes`: for small blocks, one port for each rail. `mends`: reads start again, otherwise the
  // first port is enough. `devices`: the endpoints of both processes take device memory.
  FabricMemory(std::vector<FabricEnd*> own, std::vector<FabricRail> rails,
               std::vector<std::unique_ptr<BlockPort>> notes, const std::string& peer, bool mends,
               bool devices);

  size_t rails() const { return rails_.size(); }
  std::optional<RemotePlace> show(size_t slot, const std::byte* data, size_t bytes) override;
  void hide(size_t slot) override;
  std::optional<uint32_t> read(const RemotePlace& place, size_t offset,
                               std::span<std::byte> into) override;
  State state(uint32_t read) const override;
  void release(uint32_t read) override;
  bool reaches_devices() const override { return devices_; }
  bool prepare(const std::byte* data, size_t bytes) override;
  void tell(Note note) override;
  std::optional<Note> hear() override;
  bool has_notes() override;
  bool flush() override;
  void progress() override;
  void abandon(const char* why) override;
  std::string_view why_abandoned() const override { return abandoned_; }
  RailsChanged* rails_changed() override { return &notes_.channel().rails_changed(); }

 private:
  static constexpr size_t kMostTries = 12;           // of a read
  using Uses = std::vector<RegistrationCache::Use>;  // one per element of own_
  struct Read {
    bool in_use = false;
    bool waits = false;  // for room on a rail
    FabricOperation operation;
    size_t rail = 0, tries = 0;
    uint64_t opening = 0;  // of the rail's endpoint
    Deadline::Clock::time_point begun{};
    RegistrationCache::Use registration{};  // if the provider requires local registration
    RemotePlace place{};
    size_t offset = 0;
    std::span<std::byte> into{};
  };

  FabricEnd& end_of(const Read& one) const { return rails_[one.rail].peer->end(); }
  bool is_lost(const Read& one) const;
  bool may_go_on(const Read& one) const { return mends_ && one.tries < kMostTries; }
  bool start(Read& one);
  void look_after(Read& one, Deadline::Clock::time_point now);
  std::optional<size_t> next_rail(const Read& one);
  void send_notes();
  bool is_of_device(std::span<const std::byte> memory) const;

  const std::vector<FabricEnd*> own_;
  const std::vector<FabricRail> rails_;
  const bool mends_;
  BlockWire notes_;
  const bool devices_;
  std::deque<Note> to_tell_;
  std::array<Uses, kSlots> shown_;
  std::array<Read, kReads> reads_;
  size_t next_rail_ = 0;
  unsigned turn_ = 0;
  std::string abandoned_;
  size_t busy_ = 0;  // slots shown and reads in flight
};

}  // namespace hccl_like
