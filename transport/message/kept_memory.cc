#include "transport/message/kept_memory.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace hccl_like {

KeptMemory& KeptMemory::of_process() {
  static KeptMemory& instance = *new KeptMemory;
  return instance;
}

void KeptMemory::add(std::shared_ptr<void> memory, std::function<bool()> writes) {
  const std::lock_guard lock(mutex_);
  kept_.push_back({std::move(memory), std::move(writes)});
  size_.store(kept_.size(), std::memory_order_relaxed);
}

void KeptMemory::sweep() {
  if (size() == 0) return;
  std::vector<Kept> free;  // freed after the lock is released
  const std::lock_guard lock(mutex_);
  const auto first_free =
      std::partition(kept_.begin(), kept_.end(), [](const Kept& kept) { return kept.writes(); });
  std::move(first_free, kept_.end(), std::back_inserter(free));
  kept_.erase(first_free, kept_.end());
  size_.store(kept_.size(), std::memory_order_relaxed);
}

}  // namespace hccl_like
