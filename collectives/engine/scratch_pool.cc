#include "collectives/engine/scratch_pool.h"

#include <algorithm>
#include <new>

namespace hccl_like {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

ScratchPool::~ScratchPool() {
  for (Block& block : blocks_) ::operator delete(block.data, kAlignment);
}

std::byte* ScratchPool::take(size_t bytes) {
  Block* best = nullptr;
  for (Block& block : blocks_)
    if (!block.used && block.bytes >= bytes && (best == nullptr || block.bytes < best->bytes))
      best = &block;
  if (best == nullptr) {
    auto* data = static_cast<std::byte*>(::operator new(bytes, kAlignment));
    blocks_.push_back({data, bytes, false});
    best = &blocks_.back();
  }
  best->used = true;
  return best->data;
}

void ScratchPool::give_back(std::byte* data) {
  size_t kept = 0;
  for (Block& block : blocks_) {
    if (block.data == data) block.used = false;
    kept += block.bytes;
  }
  while (kept > kKeep) {
    const auto largest = std::max_element(blocks_.begin(), blocks_.end(), [](auto& a, auto& b) {
      return (a.used ? 0 : a.bytes) < (b.used ? 0 : b.bytes);
    });
    if (largest->used) return;
    kept -= largest->bytes;
    ::operator delete(largest->data, kAlignment);
    blocks_.erase(largest);
  }
}

}  // namespace hccl_like
