#include "collectives/same_host/known_memory.h"

#include <algorithm>
#include <utility>

namespace hccl_like {
namespace {

// Hash key only; find() compares the whole offers.
uint64_t index_of(std::span<const MemoryOffer> offers) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  uint64_t index = 0;
  for (const MemoryOffer& offer : offers) {
    index = (index ^ offer.input) * kOdd;
    index = (index ^ index >> 32 ^ offer.output) * kOdd;
  }
  return index ^ index >> 29;
}

}  // namespace

std::shared_ptr<const KnownMemory::Agreement> KnownMemory::find(
    std::span<const MemoryOffer> offers) const {
  const uint64_t index = index_of(offers);
  const std::lock_guard lock(mutex_);
  const auto found = agreements_.find(index);
  if (found == agreements_.end() || !std::ranges::equal(found->second->offers, offers))
    return nullptr;
  return found->second;
}

void KnownMemory::remember(std::shared_ptr<const Agreement> agreement) {
  const uint64_t index = index_of(agreement->offers);
  const std::lock_guard lock(mutex_);
  if (agreements_.insert_or_assign(index, std::move(agreement)).second) order_.push_back(index);
  if (order_.size() <= kMost) return;
  agreements_.erase(order_.front());
  order_.erase(order_.begin());
}

}  // namespace hccl_like
