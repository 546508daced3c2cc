#pragma once
// The last calls of a communicator, kept for comparison with a peer's report about one of them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace hccl_like {

// Guarded by its owner. Grows with use, since a job may have hundreds of groups with few calls.
class CallLog {
 public:
  struct Entry {
    uint64_t number = 0;  // the call's number + 1; 0: none
    uint64_t fingerprint = 0;
    size_t bytes = 0;    // payload, for error messages
    uint64_t shown = 0;  // the number shown to users
  };

  // Largest supported lead of a rank that waits for no message of a peer.
  static constexpr uint32_t kCalls = 128;

  // Sequences begin at 0 and increase by one; a few may be skipped.
  void add(uint32_t sequence, uint64_t fingerprint, size_t bytes, uint64_t shown) {
    if (entries_.size() < kCalls && sequence >= entries_.size()) grow(sequence);
    entries_[sequence % entries_.size()] = {uint64_t{sequence} + 1, fingerprint, bytes, shown};
  }
  // nullopt if the call was not made yet or was overwritten.
  std::optional<Entry> find(uint32_t sequence) const {
    if (entries_.empty()) return std::nullopt;
    const Entry& entry = entries_[sequence % entries_.size()];
    return entry.number == uint64_t{sequence} + 1 ? std::optional(entry) : std::nullopt;
  }

 private:
  // Until the log is full, each entry is at index `sequence`, so growth moves none.
  void grow(uint32_t sequence) {
    size_t size = std::max<size_t>(entries_.size(), 8);
    while (size < kCalls && size <= sequence) size *= 2;
    entries_.resize(size);
  }

  std::vector<Entry> entries_;
};

}  // namespace hccl_like
