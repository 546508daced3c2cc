#pragma once
// Mappings of memory that local peers exported, cached by the name that the owner assigned.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/base/result.h"
#include "device/device.h"
#include "transport/same_host/commons.h"

namespace hccl_like {

// A mapping of a peer's memory; unmapped when no reference is left.
class PeerMapping {
 public:
  explicit PeerMapping(ImportedRange range) : range_(std::move(range)) {}
  std::byte* data() const { return range_.data(); }
  size_t size() const { return range_.size(); }

 private:
  friend class PeerMemory;
  const ImportedRange range_;
  mutable std::atomic<uint64_t> used_{0};  // clock value of the last use
};

// Mappings are cached, because calls reuse a few allocations and mapping takes as long as many
// calls. A mapping is closed when its owner has freed the memory or exited (Exports), or, least
// recently used first, when there are too many. If the device cannot tell which memory was freed,
// unused mappings expire. A mapping stays valid while a caller holds it. Memory without a name, or
// of an owner without Commons, is mapped for one caller only.
//
// Any thread. A cached open takes tens of nanoseconds. The first one may take milliseconds, during
// which other threads wait. The devices must outlive this object and all views.
class PeerMemory {
 public:
  static constexpr size_t kKept = 512;
  static constexpr uint64_t kBetweenLooks = 64;
  // Mappings of devices without ipc_lives (no knowledge of freed memory) expire after so many
  // calls.
  static constexpr uint64_t kUnusedUntold = 256;

  explicit PeerMemory(size_t most_bytes = half_of_memory()) : most_bytes_(most_bytes) {}

  using Mapping = std::shared_ptr<const PeerMapping>;
  struct View {
    Mapping mapping;
    std::byte* data = nullptr;
  };

  enum class For : uint8_t {
    kHost,    // host code: Device::import_range()
    kDevice,  // work of the device: Device::open_peer(); `data` is not an address for host code
  };
  // Maps `bytes` bytes of the memory that `owner` exported as `range`, by a device of the same kind
  // as `device`. `owner` may be null. Errors are cached. An offset outside of the mapping gives
  // kMismatch, because values from peers are not trusted.
  Result<View> open(const Device& device, int index, const ExportedRange& range, size_t bytes,
                    const PeerCommons* owner, For user = For::kHost);
  // Records a use by a caller that kept the mapping.
  void use(const PeerMapping& mapping) const {
    mapping.used_.store(clock_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  void close_freed();

  struct Stats {
    size_t mappings = 0;
    size_t bytes = 0;
  };
  Stats stats() const;

 private:
  struct Key {
    const Device* device;
    int index;
    uint64_t owner;
    uint64_t name;
    For user;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const noexcept;
  };
  struct Known {
    Mapping mapping;             // null after an error
    std::optional<Error> error;  // the cached error
    PeerCommons owner;
  };
  using Mappings = std::vector<Mapping>;
  using Table = std::unordered_map<Key, Known, Hash>;

  static size_t half_of_memory();
  static Result<View> view(const Mapping& mapping, uint64_t offset, size_t bytes);
  static Result<ImportedRange> map(const Device& device, int index, const hcd_ipc_handle& handle,
                                   For user);
  Known make(const Key& key, const hcd_ipc_handle& handle, const PeerCommons& owner);
  // Requires mutex_.
  bool may_be_freed(const Key& key, const Known& known) const;
  // Require mutex_. Return the mappings to close after mutex_ is released.
  Mappings take_freed();
  void make_room(Table::iterator added, Mappings& closed);
  Table::iterator remove(Table::iterator at, Mappings& closed);

  const size_t most_bytes_;
  mutable std::mutex mutex_;
  std::atomic<uint64_t> clock_{0};
  size_t bytes_ = 0;
  Table known_;
};

}  // namespace hccl_like
