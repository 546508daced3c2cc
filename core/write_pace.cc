#include "core/write_pace.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "core/copy.h"

namespace hccl_like {
namespace {

constexpr int64_t kUnit = 1 << 20;
// What a MiB takes its reader longer at most, in ns, if it was written past the caches. (100 us where cores share a cache.)
constexpr int64_t kReaderPays = 150'000;
constexpr int64_t kWriteForgetting = 4;
// The first bytes of writes are all measured, then one write of so many.
constexpr uint64_t kSampleAll = 16 << 20;
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

void copy_by(WriteWay way, std::byte* to, const std::byte* from, size_t bytes, size_t all,
             bool in_order) {
  if (way == WriteWay::kPastCaches)
    copy_past_caches(to, from, bytes);
  else if (in_order)
    std::memcpy(to, from, bytes);
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

size_t WritePace::record_of(size_t all) const {
  const auto larger = static_cast<size_t>(std::bit_width((std::max<size_t>(all, 1) - 1) >> 16));
  return line_time_.distance() * kSizes + std::min((larger + 1) / 2, kSizes - 1);
}

WriteWay WritePace::copy(std::byte* to, const std::byte* from, size_t bytes, size_t all,
                         bool in_order) {
  using Clock = std::chrono::steady_clock;
  const Choice choice = choose(bytes, all);
  if (!choice.measured) {
    copy_by(choice.way, to, from, bytes, all, in_order);
    return bytes < kLeast ? records_[record_of(all)].way.load(std::memory_order_relaxed)
                          : choice.way;
  }
  const auto begin = Clock::now();
  copy_by(choice.way, to, from, bytes, all, in_order);
  learn(bytes, choice, Clock::now() - begin);
  return choice.way;
}

WritePace::Choice WritePace::choose(size_t bytes, size_t all) {
  if (bytes < kLeast) return {};
  const size_t number = record_of(all);
  Record& record = records_[number];
  const WriteWay way = record.way.load(std::memory_order_relaxed);
  if (bytes < kLeastMeasured) return {.way = way};
  const uint32_t write = writes_.load(std::memory_order_relaxed);
  writes_.store(write + 1, std::memory_order_relaxed);
  const uint64_t at = record.bytes.load(std::memory_order_relaxed);
  const bool sampled = at < kSampleAll || write % kSample == 0;
  record.bytes.store(at + bytes, std::memory_order_relaxed);
  const uint64_t before = bytes_.load(std::memory_order_relaxed);
  if (before < kNew) bytes_.store(before + bytes, std::memory_order_relaxed);
  Choice choice{.way = way, .measured = sampled, .record = number};
  if (way == WriteWay::kThroughCaches && before >= kNew && record.tries_past_caches(at)) {
    choice.way = WriteWay::kPastCaches;
    choice.measured = true;
  } else if (way == WriteWay::kPastCaches && tries_caches(at)) {
    choice.way = WriteWay::kThroughCaches;
    choice.measured = measures_caches(at);
  }
  return choice;
}

bool WritePace::Record::tries_past_caches(uint64_t at) {
  const uint64_t next = next_trial.load(std::memory_order_relaxed);
  if (at < next) return false;
  const uint32_t times = tried.load(std::memory_order_relaxed) + 1;
  tried.store(times % kTries, std::memory_order_relaxed);
  if (times == kTries) next_trial.store(at + std::min(next, kPeriod), std::memory_order_relaxed);
  return true;
}

void WritePace::Record::change(WriteWay other, uint32_t looks) {
  bytes.store(0, std::memory_order_relaxed);
  next_trial.store(kFirstTrial, std::memory_order_relaxed);
  tried.store(0, std::memory_order_relaxed);
  changed_at.store(looks, std::memory_order_relaxed);
  way.store(other, std::memory_order_relaxed);
}

// Cores that have just moved apart make writes slow before looks tell: what was learnt from those is not held against the distance
// that was.
void WritePace::looked(std::chrono::nanoseconds took) {
  const uint32_t was = line_time_.distance();
  line_time_.add(took);
  if (line_time_.distance() <= was) return;
  const uint32_t looks = line_time_.looks();
  for (Record& record : std::span(records_).subspan(was * kSizes, kSizes))
    if (record.way.load(std::memory_order_relaxed) == WriteWay::kPastCaches &&
        looks - record.changed_at.load(std::memory_order_relaxed) <= LineTime::kShows)
      record.change(WriteWay::kThroughCaches, looks);
}

void WritePace::learn(size_t bytes, const Choice& choice, std::chrono::nanoseconds took) {
  Record& record = records_[choice.record];
  const int64_t now = std::max<int64_t>(1, took.count() * kUnit / static_cast<int64_t>(bytes));
  std::atomic<int64_t>& cost = record.costs[index(choice.way)];
  const int64_t known = cost.load(std::memory_order_relaxed);
  cost.store(known == 0 ? now : std::min(now, known + known / kWriteForgetting),
             std::memory_order_relaxed);
  const int64_t through = record.costs[0].load(std::memory_order_relaxed);
  const int64_t past = record.costs[1].load(std::memory_order_relaxed);
  if (through == 0 || past == 0) return;
  const bool goes_past = record.way.load(std::memory_order_relaxed) == WriteWay::kPastCaches;
  if (!goes_past && through > past + kReaderPays)
    record.change(WriteWay::kPastCaches, line_time_.looks());
  if (goes_past && through < past + kReaderPays / 2)
    record.change(WriteWay::kThroughCaches, line_time_.looks());
}

}  // namespace hccl_like
