#pragma once
// Memory that peers on this host exported, mapped once and found again by its handle.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "device/device.h"

namespace hccl_like {

// Calls name the same few allocations again and again, and mapping one takes as long as many calls: what was mapped
// stays. Beyond kKept mappings those least recently asked for are closed, unless somebody holds a View of them.
//
// Any thread. An open of what is known takes tens of nanoseconds; the first one maps and may take milliseconds, during
// which others wait. The devices must outlive this object and all views.
class PeerMemory {
 public:
  // Some tens of pieces of each rank's allocators.
  static constexpr size_t kKept = 512;

  // The peer's memory at `data`, for as long as `mapping` is held.
  struct View {
    std::shared_ptr<const ImportedRange> mapping;
    std::byte* data = nullptr;
  };

  // `bytes` bytes of what the peer exported as `range`, by a device of the same kind as `device`. A handle that cannot be
  // opened is not tried again: the same error is given at once. An offset that lies outside of what the handle opens
  // gives kMismatch: what a peer says is not trusted.
  Result<View> open(const Device& device, int index, const ExportedRange& range, size_t bytes);

 private:
  struct Key {
    const Device* device;
    int index;
    hcd_ipc_handle handle;
    bool operator==(const Key& other) const noexcept;
  };
  struct Hash {
    size_t operator()(const Key& key) const noexcept;
  };
  struct Known {
    std::shared_ptr<const ImportedRange> mapping;  // null if it could not be opened
    std::optional<Error> error;                    // why not
    uint64_t used = 0;                             // when it was last asked for
  };
  using Mappings = std::vector<std::shared_ptr<const ImportedRange>>;

  Mappings make_room();

  std::mutex mutex_;
  uint64_t clock_ = 0;
  std::unordered_map<Key, Known, Hash> known_;
};

}  // namespace hccl_like
