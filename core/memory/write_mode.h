#pragma once
// Chooses how to write memory that another core reads again and again: through the caches or past
// them.
//
// A write to lines that the reader has cached takes one exchange with its core for each line. That
// is cheap between cores that share a cache and up to ten times as long between dies, where
// non-temporal stores are faster although the reader then fetches the lines from memory. The
// system does not tell how far two cores are apart, and a virtual machine's cores move. So each
// process measures a non-temporal write once, and WriteMode compares samples of ordinary writes
// with that.
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace hccl_like {

// Of memory with the same readers. Used by one thread at a time. Zeros are a new one, so it may lie
// in shared memory that its owner alone uses.
class WriteMode {
 public:
  // Copies as memcpy.
  void copy(std::byte* to, const std::byte* from, size_t bytes);

  bool goes_past_caches() const { return past_; }
  // The sample of a write through the caches. The mode changes after kVotes samples in a row that
  // speak for the other one, since a preemption makes any single sample slow.
  void judge(size_t bytes, std::chrono::nanoseconds took);

  // A write through the caches of at least this time is slow: kSlow times a non-temporal one.
  static std::chrono::nanoseconds slow(size_t bytes);

  static constexpr size_t kLeast = 4 << 10;      // bytes; shorter writes go through the caches
  static constexpr uint32_t kSampleEvery = 8;    // writes through the caches
  static constexpr uint32_t kProbeEvery = 1024;  // writes past the caches; kVotes of them
  static constexpr uint32_t kVotes = 3;
  static constexpr int kSlow = 6;

 private:
  bool past_ = false;
  uint32_t writes_ = 0;
  uint32_t votes_ = 0;  // in a row
};

}  // namespace hccl_like
