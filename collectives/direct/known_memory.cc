#include "collectives/direct/known_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "collectives/fingerprint.h"

namespace hccl_like {

HandleMark mark_of(const hcd_ipc_handle& handle) {
  std::array<uint64_t, sizeof handle.bytes / sizeof(uint64_t)> words;
  std::memcpy(words.data(), handle.bytes, sizeof handle.bytes);
  // Sums of products, which unlike chains of them can be worked out all at once: every call does it.
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  uint64_t one = 0, other = 0, factor = kOdd;
  for (const uint64_t word : words) {
    one += (word ^ word >> 32) * factor;
    factor += 2 * kOdd;
    other += (word ^ word >> 29) * factor;
    factor += 2 * kOdd;
  }
  return {mix(one, other), mix(other, ~one) | 1};
}

HandleMark mark_of(std::span<const hcd_ipc_handle> handles) {
  HandleMark all = mark_of(handles.front());
  for (const hcd_ipc_handle& handle : handles.subspan(1)) {
    const HandleMark one = mark_of(handle);
    all = {mix(all[0], one[0]), mix(all[1], one[1]) | 1};
  }
  return all;
}

namespace {

// Marks are random, so that little has to be done to them. Where they lie counts.
uint64_t index_of(std::span<const MemoryOffer> offers) {
  uint64_t index = 0;
  for (const MemoryOffer& offer : offers)
    index = (index ^ offer.input[0]) * 0x9e3779b97f4a7c15 + offer.output[0];
  return index;
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
