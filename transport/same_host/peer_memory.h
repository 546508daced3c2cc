#pragma once
// Memory that peers on this host exported, mapped once and found again by the name that its owner
// gave it.
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

// A peer's memory, mapped here until nobody holds it.
class PeerMapping {
 public:
  explicit PeerMapping(ImportedRange range) : range_(std::move(range)) {}
  std::byte* data() const { return range_.data(); }
  size_t size() const { return range_.size(); }

 private:
  friend class PeerMemory;
  const ImportedRange range_;
  mutable std::atomic<uint64_t> used_{0};  // when it was last asked for
};

// Calls name the same few allocations again and again, and to map one takes as long as many calls.
// So a mapping stays until its owner has freed the memory or has gone (Exports), or until there are
// too many mappings: then those that were used least recently are closed. Where a device cannot
// tell what was freed, a mapping also ends when it has not been used for some time. A mapping that
// somebody holds stays as long as it is held. Memory without a name, or of an owner that shows
// nothing, is mapped for one caller.
//
// Any thread. An open of what is known takes tens of nanoseconds. The first one maps and may take
// milliseconds, during which others wait. The devices must outlive this object and all views.
class PeerMemory {
 public:
  // Some tens of pieces of each rank's allocators.
  static constexpr size_t kKept = 512;
  // Calls between two of close_freed().
  static constexpr uint64_t kBetweenLooks = 64;
  // A device without ipc_lives does not tell what its owner has freed: a mapping of it stays for
  // this many calls without use.
  static constexpr uint64_t kUnusedUntold = 256;

  // `most_bytes`: of all mappings together.
  explicit PeerMemory(size_t most_bytes = half_of_memory()) : most_bytes_(most_bytes) {}

  using Mapping = std::shared_ptr<const PeerMapping>;
  // The peer's memory at `data`, for as long as `mapping` is held.
  struct View {
    Mapping mapping;
    std::byte* data = nullptr;
  };

  // `bytes` bytes of what `owner` exported as `range`, by a device of the same kind as `device`.
  // `owner` may be null. What cannot be opened is not tried again: the same error is given at once.
  // An offset that lies outside of what the handle opens gives kMismatch: what a peer says is not
  // trusted.
  Result<View> open(const Device& device, int index, const ExportedRange& range, size_t bytes,
                    const PeerCommons* owner);
  // The mapping is used again, by a caller that did not have to open it.
  void use(const PeerMapping& mapping) const {
    mapping.used_.store(clock_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  // Closes what owners have freed.
  void close_freed();

  // Known now.
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
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const noexcept;
  };
  struct Known {
    Mapping mapping;             // null if it could not be opened
    std::optional<Error> error;  // why not
    PeerCommons owner;
  };
  using Mappings = std::vector<Mapping>;
  using Table = std::unordered_map<Key, Known, Hash>;

  static size_t half_of_memory();
  static Result<View> view(const Mapping& mapping, uint64_t offset, size_t bytes);
  Known make(const Device& device, int index, const hcd_ipc_handle& handle,
             const PeerCommons& owner);
  // With mutex_ held.
  bool may_be_freed(const Key& key, const Known& known) const;
  // The same. They return what is to be closed when mutex_ is free again.
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
