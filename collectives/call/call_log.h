#pragma once
// The last calls of a communicator, so that what another rank says of one can be held against it
// when it is over here.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace hccl_like {

// Guarded by its owner. Writing costs a nanosecond or two, and allocates while the first kCalls are
// made: a group with few calls, of which a job may have hundreds, is small.
class CallLog {
 public:
  struct Entry {
    uint64_t number = 0;  // the call's and one, so that 0 is none
    uint64_t fingerprint = 0;
    size_t bytes = 0;    // the payload, for people
    uint64_t shown = 0;  // the number by which people know the call
  };

  // By so much may a rank that expects nothing of another be ahead of it.
  static constexpr uint32_t kCalls = 128;

  // Sequences begin at 0 and go up by one, but for a few that are left out.
  void add(uint32_t sequence, uint64_t fingerprint, size_t bytes, uint64_t shown) {
    if (entries_.size() < kCalls && sequence >= entries_.size()) grow(sequence);
    entries_[sequence % entries_.size()] = {uint64_t{sequence} + 1, fingerprint, bytes, shown};
  }
  // Nothing if it was not made yet, or too long ago.
  std::optional<Entry> find(uint32_t sequence) const {
    if (entries_.empty()) return std::nullopt;
    const Entry& entry = entries_[sequence % entries_.size()];
    return entry.number == uint64_t{sequence} + 1 ? std::optional(entry) : std::nullopt;
  }

 private:
  // Until it is full no entry is above another one's place, so all stay where they are.
  void grow(uint32_t sequence) {
    size_t size = std::max<size_t>(entries_.size(), 8);
    while (size < kCalls && size <= sequence) size *= 2;
    entries_.resize(size);
  }

  std::vector<Entry> entries_;
};

}  // namespace hccl_like
