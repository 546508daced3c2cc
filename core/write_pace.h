#pragma once
// Whether memory that another core reads again and again is written through the caches or past them, learnt from the writes
// themselves.
//
// What a peer has read stays in its caches, and to write those lines again takes one exchange with that core for each. Where the
// cores share a cache this is cheap, and what is written past the caches its reader has to fetch from memory. Between dies 64 KiB
// took 25 us through the caches and 2 us past them, and the reader 4 us either way. No system tells how far two cores are apart,
// and a virtual machine's may move: what was learnt is kept for each distance (core/line_time.h), as far as looks at lines tell it; and
// for each size of a call, as what is written out of a cache takes less time either way than what comes from memory.
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "core/line_time.h"

namespace hccl_like {

enum class WriteWay : uint32_t { kThroughCaches, kPastCaches };

// For those who read what was written: what lies past the caches memcpy reads fastest, what lies in a core's caches
// copy_between_cores().
void copy_written(WriteWay way, std::byte* to, const std::byte* from, size_t bytes, size_t all);

// Tells them. A line that another core polls is there with each poll, so the writer neither looks into it nor writes it for nothing: it
// knows what it has told. `told` has but one writer, which is a thread at a time.
class ToldWay {
 public:
  void tell(std::atomic<WriteWay>& told, WriteWay way) {
    if (way_ != way) told.store(way_ = way, std::memory_order_relaxed);
  }

 private:
  WriteWay way_ = WriteWay::kThroughCaches;  // as memory of zeros has it
};

// Of one place that is written again and again. Any thread; what two learn at once may be learnt once.
class WritePace {
 public:
  // Shorter writes go through the caches.
  static constexpr size_t kLeast = 1 << 10;
  // Shorter ones go as those do that calls of up to 64 KiB make, but take too little time to learn from.
  static constexpr size_t kLeastMeasured = 4 << 10;

  // As memcpy; `all` as in copy_in_pairs(), `in_order` if it is read from the beginning to the end. Returns the way, of what is too short
  // for a choice that of the longer ones.
  WriteWay copy(std::byte* to, const std::byte* from, size_t bytes, size_t all,
                bool in_order = false);

  struct Choice {
    WriteWay way = WriteWay::kThroughCaches;
    bool measured = false;  // learn() is to be told
    size_t record = 0;
  };
  Choice choose(size_t bytes, size_t all);
  void learn(size_t bytes, const Choice& choice, std::chrono::nanoseconds took);

  // Whether looks at lines make a difference: something was written for which there is a choice.
  bool looks() const { return writes_.load(std::memory_order_relaxed) > 0; }
  // How long a look took that found what another core had just written.
  void looked(std::chrono::nanoseconds took);

 private:
  // What memory costs shows when writes have been all over it: in new memory they are slow, and what nobody has read yet is fast.
  static constexpr uint64_t kNew = 3 << 20;
  static constexpr uint64_t kFirstTrial = 512 << 10;

  // What was learnt of calls of a size while the cores were so far apart.
  struct Record {
    bool tries_past_caches(uint64_t at);
    void change(WriteWay other, uint32_t looks);

    std::atomic<WriteWay> way{WriteWay::kThroughCaches};
    // Since it became the way: bytes, and of the other way those at which it is tried next, and writes of that trial.
    std::atomic<uint64_t> bytes{0};
    std::atomic<uint64_t> next_trial{kFirstTrial};
    std::atomic<uint32_t> tried{0};
    // By WriteWay, in ns for a MiB, 0: not known. Grow a little with each write that took longer, so that they are forgotten.
    std::array<std::atomic<int64_t>, 2> costs{};
    // At how many looks the way changed last.
    std::atomic<uint32_t> changed_at{0};
  };

  // Of 64 KiB at most, 256 KiB, and so on; beyond the last one it makes no difference.
  static constexpr size_t kSizes = 6;
  size_t record_of(size_t all) const;

  LineTime line_time_;
  std::atomic<uint32_t> writes_{0};
  std::atomic<uint64_t> bytes_{0};
  std::array<Record, LineTime::kDistances * kSizes> records_;
};

}  // namespace hccl_like
