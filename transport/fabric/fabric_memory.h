#pragma once
// Reads a peer's memory with libfabric (fi_read) over one or several cards.
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

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

// Reads alternate over the rails; notes use the first rail. `notes`: a port for small blocks.
class FabricMemory final : public RemoteMemory {
 public:
  // Per process: the number of keys that fit into a RemotePlace.
  static constexpr size_t kMostRails = 4;
  // The shape of the port for notes.
  static constexpr BlockShape kNotes{.blocks = 8, .block_bytes = 64};

  // `devices`: the endpoints of both processes take device memory.
  FabricMemory(std::vector<FabricEnd*> own, std::vector<FabricRail> rails,
               std::unique_ptr<FabricPort> notes, const std::string& peer, bool devices);

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

 private:
  using Uses = std::vector<RegistrationCache::Use>;  // one per element of own_
  struct Read {
    FabricOperation operation;
    const FabricEnd* end = nullptr;  // null: not in use
    RegistrationCache::Use into;     // if the provider requires local registration
  };

  void send_notes();
  bool is_of_device(std::span<const std::byte> memory) const;

  const std::vector<FabricEnd*> own_;
  const std::vector<FabricRail> rails_;
  FabricPort& notes_port_;
  BlockWire notes_;
  const bool devices_;
  std::deque<Note> to_tell_;
  std::array<Uses, kSlots> shown_;
  std::array<Read, kReads> reads_;
  size_t next_rail_ = 0;
  size_t busy_ = 0;  // slots shown and reads in flight
};

}  // namespace hccl_like
