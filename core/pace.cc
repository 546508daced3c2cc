#include "core/pace.h"

#include <algorithm>
#include <bit>
#include <memory>

namespace hccl_like {
namespace {

// Of each way, before they are compared: the first one touches new memory.
constexpr uint32_t kTrials = 2;
constexpr uint32_t kRetry = 128;  // so often the slower way is tried again
constexpr int64_t kForgetting = 16;

CopyWay other(CopyWay way) { return way == CopyWay::kShared ? CopyWay::kKernel : CopyWay::kShared; }

}  // namespace

Pace::~Pace() { delete records_.load(); }

size_t Pace::size_of_copy(size_t bytes) {
  return std::min(kSizes - 1, static_cast<size_t>(std::bit_width(bytes / kLeast)));
}

CopyWay Pace::choose(size_t bytes, uint32_t number) const {
  if (bytes < kLeast) return CopyWay::kShared;
  const Records* const records = records_.load(std::memory_order_acquire);
  if (records == nullptr) return CopyWay::kKernel;
  const Ways& ways = (*records)[size_of_copy(bytes)];
  const auto record = [&](CopyWay way) -> const Record& { return ways[static_cast<size_t>(way)]; };
  for (const CopyWay way : {CopyWay::kKernel, CopyWay::kShared})
    if (record(way).copies.load(std::memory_order_relaxed) < kTrials) return way;
  const auto least = [&](CopyWay way) { return record(way).least.load(std::memory_order_relaxed); };
  const CopyWay faster =
      least(CopyWay::kKernel) < least(CopyWay::kShared) ? CopyWay::kKernel : CopyWay::kShared;
  return number % kRetry == 0 ? other(faster) : faster;
}

void Pace::learn(size_t bytes, CopyWay way, std::chrono::nanoseconds took) {
  if (bytes < kLeast) return;
  Records* records = records_.load(std::memory_order_acquire);
  if (records == nullptr) {
    auto fresh = std::make_unique<Records>();
    if (records_.compare_exchange_strong(records, fresh.get())) records = fresh.release();
  }
  Record& record = (*records)[size_of_copy(bytes)][static_cast<size_t>(way)];
  const uint32_t copies = record.copies.load(std::memory_order_relaxed);
  const int64_t least = record.least.load(std::memory_order_relaxed);
  const int64_t now = took.count();
  record.least.store(copies == 0 ? now : std::min(now, least + least / kForgetting),
                     std::memory_order_relaxed);
  record.copies.store(std::min(copies + 1, kTrials), std::memory_order_relaxed);
}

}  // namespace hccl_like
