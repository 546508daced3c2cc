#include "collectives/direct/known_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "collectives/fingerprint.h"

namespace hccl_like {

HandleMark mark_of(const hcd_ipc_handle& handle) {
  std::array<uint64_t, sizeof handle.bytes / sizeof(uint64_t)> words;
  std::memcpy(words.data(), handle.bytes, sizeof handle.bytes);
  HandleMark mark{1, 2};
  for (size_t i = 0; i < words.size(); i += 2) {
    mark[0] = mix(mark[0], words[i]);
    mark[1] = mix(mark[1], words[i + 1]);
  }
  return {mix(mark[0], mark[1]), mix(mark[1], ~mark[0]) | 1};
}

std::shared_ptr<const KnownMemory::Agreement> KnownMemory::find(
    std::span<const MemoryOffer> offers) const {
  const std::lock_guard lock(mutex_);
  for (const auto& agreement : agreements_)
    if (std::ranges::equal(agreement->offers, offers)) return agreement;
  return nullptr;
}

void KnownMemory::remember(std::shared_ptr<const Agreement> agreement) {
  const std::lock_guard lock(mutex_);
  if (agreements_.size() < kMost) return agreements_.push_back(std::move(agreement));
  agreements_[oldest_] = std::move(agreement);
  oldest_ = (oldest_ + 1) % kMost;
}

}  // namespace hccl_like
