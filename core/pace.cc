#include "core/pace.h"

#include <algorithm>
#include <bit>
#include <memory>

namespace hccl_like {
namespace {

// Of each way, before they are compared.
constexpr uint32_t kTrials = 2;
constexpr uint32_t kRetry = 128;
constexpr int64_t kForgetting = 16;

// Whether the slower way is tried again after so many copies. Often at first, as the first copies touch new memory, and
// always twice, as what was not used for long is in no cache.
bool tries_again(uint32_t copies) {
  const auto begins = [](uint32_t n) {
    return n >= 4 * kTrials && (std::has_single_bit(n) || n % kRetry == 0);
  };
  return begins(copies) || begins(copies - 1);
}

CopyWay other(CopyWay way) { return way == CopyWay::kShared ? CopyWay::kKernel : CopyWay::kShared; }

}  // namespace

Pace::~Pace() { delete records_.load(); }

size_t Pace::size_of_copy(size_t bytes) {
  return std::min(kSizes - 1, static_cast<size_t>(std::bit_width(bytes / kLeast)));
}

CopyWay Pace::choose(size_t bytes) const {
  if (bytes < kLeast) return CopyWay::kShared;
  const Records* const records = records_.load(std::memory_order_acquire);
  if (records == nullptr) return CopyWay::kKernel;
  const Ways& ways = (*records)[size_of_copy(bytes)];
  const auto record = [&](CopyWay way) -> const Record& { return ways[static_cast<size_t>(way)]; };
  uint32_t copies = 0;
  for (const CopyWay way : {CopyWay::kKernel, CopyWay::kShared}) {
    const uint32_t by_it = record(way).copies.load(std::memory_order_relaxed);
    if (by_it < kTrials) return way;
    copies += by_it;
  }
  const auto least = [&](CopyWay way) { return record(way).least.load(std::memory_order_relaxed); };
  const CopyWay faster =
      least(CopyWay::kKernel) < least(CopyWay::kShared) ? CopyWay::kKernel : CopyWay::kShared;
  return tries_again(copies) ? other(faster) : faster;
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
  record.copies.store(copies + 1, std::memory_order_relaxed);
}

}  // namespace hccl_like
