#include "core/write_pace.h"

#include <algorithm>
#include <cstring>

#include "core/copy.h"

namespace hccl_like {
namespace {

constexpr int64_t kUnit = 1 << 20;
// What a MiB takes its reader longer at most, in ns, if it was written past the caches. (100 us where cores share a cache.)
constexpr int64_t kReaderPays = 150'000;
constexpr int64_t kForgetting = 4;
// The first writes are measured, then one of so many.
constexpr uint32_t kSampleAll = 256;
constexpr uint32_t kSample = 8;

// Writes past the caches are tried a few at a time, after twice as many others than before.
constexpr uint32_t kTries = 4;
constexpr uint64_t kPeriod = 1 << 30;
// Writes through the caches are tried at the end of each GiB that went past them, until the memory lies in the readers' caches
// again.
constexpr uint64_t kTrial = 4 << 20;
constexpr uint64_t kMeasured = 1 << 20;
bool tries_caches(uint64_t past) { return past % kPeriod >= kPeriod - kTrial; }
bool measures_caches(uint64_t past) { return past % kPeriod >= kPeriod - kMeasured; }

size_t index(WriteWay way) { return static_cast<size_t>(way); }

void copy_by(WriteWay way, std::byte* to, const std::byte* from, size_t bytes, size_t all) {
  if (way == WriteWay::kPastCaches)
    copy_past_caches(to, from, bytes);
  else
    copy_in_pairs(to, from, bytes, all);
}

}  // namespace

void copy_written(WriteWay way, std::byte* to, const std::byte* from, size_t bytes, size_t all) {
  if (way == WriteWay::kPastCaches)
    std::memcpy(to, from, bytes);
  else
    copy_between_cores(to, from, bytes, all);
}

WriteWay WritePace::copy(std::byte* to, const std::byte* from, size_t bytes, size_t all) {
  using Clock = std::chrono::steady_clock;
  const Choice choice = choose(bytes);
  if (!choice.measured) {
    copy_by(choice.way, to, from, bytes, all);
    return bytes < kLeast ? way_.load(std::memory_order_relaxed) : choice.way;
  }
  const auto begin = Clock::now();
  copy_by(choice.way, to, from, bytes, all);
  learn(bytes, choice.way, Clock::now() - begin);
  return choice.way;
}

WritePace::Choice WritePace::choose(size_t bytes) {
  if (bytes < kLeast) return {};
  const WriteWay way = way_.load(std::memory_order_relaxed);
  if (bytes < kLeastMeasured) return {.way = way};
  const uint32_t write = writes_.load(std::memory_order_relaxed);
  writes_.store(write + 1, std::memory_order_relaxed);
  const bool sampled = write < kSampleAll || write % kSample == 0;
  const uint64_t at = bytes_.load(std::memory_order_relaxed);
  bytes_.store(at + bytes, std::memory_order_relaxed);
  if (way == WriteWay::kThroughCaches)
    return tries_past_caches(at) ? Choice{.way = WriteWay::kPastCaches, .measured = true}
                                 : Choice{.way = way, .measured = sampled};
  return tries_caches(at) ? Choice{.way = WriteWay::kThroughCaches, .measured = measures_caches(at)}
                          : Choice{.way = way, .measured = sampled};
}

bool WritePace::tries_past_caches(uint64_t bytes) {
  const uint64_t next = next_trial_.load(std::memory_order_relaxed);
  if (bytes < next) return false;
  const uint32_t tried = tried_.load(std::memory_order_relaxed) + 1;
  tried_.store(tried % kTries, std::memory_order_relaxed);
  if (tried == kTries)
    next_trial_.store(bytes + std::min(next, kPeriod), std::memory_order_relaxed);
  return true;
}

void WritePace::change(WriteWay way) {
  bytes_.store(0, std::memory_order_relaxed);
  next_trial_.store(kFirstTrial, std::memory_order_relaxed);
  tried_.store(0, std::memory_order_relaxed);
  way_.store(way, std::memory_order_relaxed);
}

void WritePace::learn(size_t bytes, WriteWay way, std::chrono::nanoseconds took) {
  const int64_t now = std::max<int64_t>(1, took.count() * kUnit / static_cast<int64_t>(bytes));
  std::atomic<int64_t>& cost = costs_[index(way)];
  const int64_t known = cost.load(std::memory_order_relaxed);
  cost.store(known == 0 ? now : std::min(now, known + known / kForgetting),
             std::memory_order_relaxed);
  const int64_t through = costs_[0].load(std::memory_order_relaxed);
  const int64_t past = costs_[1].load(std::memory_order_relaxed);
  if (through == 0 || past == 0) return;
  const bool goes_past = way_.load(std::memory_order_relaxed) == WriteWay::kPastCaches;
  if (!goes_past && through > past + kReaderPays) change(WriteWay::kPastCaches);
  if (goes_past && through < past + kReaderPays / 2) change(WriteWay::kThroughCaches);
}

}  // namespace hccl_like
