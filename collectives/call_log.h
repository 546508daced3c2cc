#pragma once
// The last calls of a communicator, so that what another rank says of one can be held against it when it is over here.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace hccl_like {

// Guarded by its owner. Writing costs a nanosecond or two.
class CallLog {
 public:
  struct Entry {
    uint64_t number = 0;  // the call's and one, so that 0 is none
    uint64_t fingerprint = 0;
    size_t bytes = 0;  // the payload, for people
  };

  // By so much may a rank that expects nothing of another be ahead of it.
  static constexpr uint32_t kCalls = 128;

  void add(uint32_t sequence, uint64_t fingerprint, size_t bytes) {
    entries_[sequence % kCalls] = {uint64_t{sequence} + 1, fingerprint, bytes};
  }
  // Nothing if it was not made yet, or too long ago.
  std::optional<Entry> find(uint32_t sequence) const {
    const Entry& entry = entries_[sequence % kCalls];
    return entry.number == uint64_t{sequence} + 1 ? std::optional(entry) : std::nullopt;
  }

 private:
  std::array<Entry, kCalls> entries_{};
};

}  // namespace hccl_like
