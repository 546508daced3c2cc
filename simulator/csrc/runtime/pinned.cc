#include "runtime/pinned.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "base/error.h"
#include "runtime/idle_calls.h"
#include "runtime/stream.h"

namespace torch_sim {
namespace {

constexpr size_t kSmallest = 4096;  // also the alignment

}  // namespace

void* PinnedMemory::allocate(size_t requested) {
  const size_t bytes = std::bit_ceil(std::max(requested, kSmallest));
  std::unique_lock lock(mutex_);
  reap();
  if (free_[bytes].empty()) {
    lock.unlock();
    idle_call();
    lock.lock();
  }
  auto& cached = free_[bytes];
  void* at = nullptr;
  if (!cached.empty()) {
    at = cached.back();
    cached.pop_back();
  } else {
    at = std::aligned_alloc(kSmallest, bytes);
    if (!at)
      throw OutOfMemory("sim: the host has no " + std::to_string(bytes) +
                        " bytes left for pinned memory");
    ++stats_.blocks;
    stats_.bytes += bytes;
  }
  allocated_.emplace(static_cast<std::byte*>(at), Block{bytes, {}, 0});
  ++stats_.in_use_blocks;
  stats_.in_use_bytes += bytes;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.in_use_bytes);
  return at;
}

void PinnedMemory::free(void* at) {
  std::lock_guard lock(mutex_);
  auto node = allocated_.extract(static_cast<std::byte*>(at));
  Block& block = node.mapped();
  --stats_.in_use_blocks;
  stats_.in_use_bytes -= block.bytes;
  for (Stream* stream : block.uses) {
    RecordingPtr recording = record_on(*stream);
    if (recording->ready()) continue;
    pending_.emplace_back(std::move(recording), node.key());
    ++block.pending;
  }
  if (block.pending == 0)
    free_[block.bytes].push_back(at);
  else
    leaving_.insert(std::move(node));
}

bool PinnedMemory::record_use(const void* inside, Stream& stream) {
  std::lock_guard lock(mutex_);
  const auto found = find(inside);
  if (found == allocated_.end()) return false;
  found->second.uses.insert(&stream);
  return true;
}

bool PinnedMemory::holds(const void* inside) const {
  std::lock_guard lock(mutex_);
  return const_cast<PinnedMemory*>(this)->find(inside) != allocated_.end();
}

void PinnedMemory::empty_cache() {
  std::lock_guard lock(mutex_);
  reap();
  for (auto& [bytes, blocks] : free_) {
    stats_.blocks -= blocks.size();
    stats_.bytes -= blocks.size() * bytes;
    for (void* at : blocks) std::free(at);
    blocks.clear();
  }
}

PinnedMemory::Stats PinnedMemory::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void PinnedMemory::reset_peaks() {
  std::lock_guard lock(mutex_);
  stats_.peak_bytes = stats_.in_use_bytes;
}

PinnedMemory::Blocks::iterator PinnedMemory::find(const void* inside) {
  auto* at = static_cast<const std::byte*>(inside);
  const auto after = allocated_.upper_bound(at);
  if (after == allocated_.begin()) return allocated_.end();
  const auto found = std::prev(after);
  return at < found->first + found->second.bytes ? found : allocated_.end();
}

void PinnedMemory::reap() {
  std::erase_if(pending_, [&](auto& item) {
    if (!item.first->ready()) return false;
    const auto block = leaving_.find(item.second);
    if (--block->second.pending == 0) {
      free_[block->second.bytes].push_back(const_cast<std::byte*>(item.second));
      leaving_.erase(block);
    }
    return true;
  });
}

}  // namespace torch_sim
