#include "core/line_time.h"

#include <algorithm>
#include <bit>

namespace hccl_like {

void LineTime::add(std::chrono::nanoseconds took) {
  constexpr int64_t kMost = 1 << 20;
  const uint32_t number = added_.load(std::memory_order_relaxed);
  added_.store(number + 1, std::memory_order_relaxed);
  looks_[number % kLooks].store(static_cast<uint32_t>(std::clamp<int64_t>(took.count(), 0, kMost)),
                                std::memory_order_relaxed);
  if (number % kLooks != kLooks - 1) return;
  std::array<uint32_t, kLooks> looks;
  for (size_t i = 0; i < kLooks; ++i) looks[i] = looks_[i].load(std::memory_order_relaxed);
  std::ranges::nth_element(looks, looks.begin() + kLooks / 2);
  constexpr uint32_t kUnit = 16;
  const auto doublings = static_cast<uint32_t>(std::bit_width(looks[kLooks / 2] / kUnit));
  distance_.store(std::clamp<uint32_t>(doublings, 1, kDistances - 1), std::memory_order_relaxed);
}

}  // namespace hccl_like
