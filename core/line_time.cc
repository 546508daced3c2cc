#include "core/line_time.h"

#include <algorithm>
#include <bit>

namespace hccl_like {
namespace {

uint32_t distance_of(uint32_t look, uint32_t most) {
  constexpr uint32_t kUnit = 16;
  return std::clamp<uint32_t>(static_cast<uint32_t>(std::bit_width(look / kUnit)), 1, most);
}

}  // namespace

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
  distance_.store(distance_of(looks[kLooks / 2], kDistances - 1), std::memory_order_relaxed);
}

bool LineTime::is_confirmed_since(uint32_t looks) const {
  const uint32_t added = this->looks();
  if (added - looks < kConfirming) return false;
  for (uint32_t i = 1; i <= kConfirming; ++i)
    if (distance_of(looks_[(added - i) % kLooks].load(std::memory_order_relaxed), kDistances - 1) !=
        distance())
      return false;
  return true;
}

}  // namespace hccl_like
