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
// And at once after so many writes through the caches that took more than twice the time that was known.
constexpr uint32_t kSlow = 4;
// Writes through the caches are tried after so much that went past them, until the memory lies in the readers' caches again. That
// takes some ms where cores are far apart, so it is left for later if it was tried just before.
constexpr uint64_t kBetween = 64 << 20;
constexpr uint64_t kLater = 8 << 20;
constexpr std::chrono::milliseconds kEvery{250};
constexpr uint64_t kTrial = 4 << 20;
constexpr uint64_t kMeasured = 1 << 20;

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
  if (!tries_caches(at)) return {.way = way, .measured = sampled};
  const uint64_t end = next_trial_.load(std::memory_order_relaxed) + kTrial;
  return {.way = WriteWay::kThroughCaches, .measured = at + kMeasured >= end};
}

bool WritePace::tries_caches(uint64_t bytes) {
  const uint64_t begin = next_trial_.load(std::memory_order_relaxed);
  if (bytes < begin) return false;
  if (bytes >= begin + kTrial) {
    next_trial_.store(bytes + kBetween, std::memory_order_relaxed);
    tried_.store(0, std::memory_order_relaxed);
    return false;
  }
  if (tried_.load(std::memory_order_relaxed) > 0) return true;
  const Clock::time_point now = now_();
  if (now - tried_at_.load(std::memory_order_relaxed) < kEvery) {
    next_trial_.store(bytes + kLater, std::memory_order_relaxed);
    return false;
  }
  tried_at_.store(now, std::memory_order_relaxed);
  tried_.store(1, std::memory_order_relaxed);
  next_trial_.store(bytes, std::memory_order_relaxed);
  return true;
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

// Of a write through the caches, while that is the way: true if it is the last of some that took far longer than was known. The
// other way is tried next.
bool WritePace::notices(int64_t now, int64_t known) {
  if (known == 0 || now <= 2 * known) {
    slow_.store(0, std::memory_order_relaxed);
    return false;
  }
  const uint32_t in_a_row = slow_.load(std::memory_order_relaxed) + 1;
  const int64_t least =
      in_a_row == 1 ? now : std::min(now, slow_cost_.load(std::memory_order_relaxed));
  slow_cost_.store(least, std::memory_order_relaxed);
  slow_.store(in_a_row % kSlow, std::memory_order_relaxed);
  const uint64_t at = bytes_.load(std::memory_order_relaxed);
  if (in_a_row < kSlow || at < kFirstTrial) return false;
  next_trial_.store(std::min(at, next_trial_.load(std::memory_order_relaxed)),
                    std::memory_order_relaxed);
  return true;
}

void WritePace::change(WriteWay way) {
  bytes_.store(0, std::memory_order_relaxed);
  next_trial_.store(way == WriteWay::kPastCaches ? kBetween : kFirstTrial,
                    std::memory_order_relaxed);
  tried_.store(0, std::memory_order_relaxed);
  slow_.store(0, std::memory_order_relaxed);
  tried_at_.store(now_(), std::memory_order_relaxed);
  way_.store(way, std::memory_order_relaxed);
}

void WritePace::learn(size_t bytes, WriteWay way, std::chrono::nanoseconds took) {
  const int64_t now = std::max<int64_t>(1, took.count() * kUnit / static_cast<int64_t>(bytes));
  std::atomic<int64_t>& cost = costs_[index(way)];
  const int64_t known = cost.load(std::memory_order_relaxed);
  const bool goes_past = way_.load(std::memory_order_relaxed) == WriteWay::kPastCaches;
  if (!goes_past && way == WriteWay::kThroughCaches && notices(now, known))
    cost.store(slow_cost_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  else
    cost.store(known == 0 ? now : std::min(now, known + known / kForgetting),
               std::memory_order_relaxed);
  const int64_t through = costs_[0].load(std::memory_order_relaxed);
  const int64_t past = costs_[1].load(std::memory_order_relaxed);
  if (through == 0 || past == 0) return;
  if (!goes_past && through > past + kReaderPays) change(WriteWay::kPastCaches);
  if (goes_past && through < past + kReaderPays / 2) change(WriteWay::kThroughCaches);
}

}  // namespace hccl_like
