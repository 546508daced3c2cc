#include "device/host/shared_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

namespace hccl_like {
namespace {

// A new piece is a quarter of the total, within these bounds, to keep pieces few.
constexpr size_t kSmallestPiece = size_t{4} << 20;
constexpr size_t kLargestStep = size_t{256} << 20;

size_t round_up(size_t bytes, size_t grain) { return (bytes + grain - 1) / grain * grain; }

}  // namespace

SharedPool& SharedPool::of_process() {
  static std::atomic<SharedPool*> pool = [] {
    ::pthread_atfork(nullptr, nullptr, [] { pool.store(new SharedPool); });
    return new SharedPool;
  }();
  return *pool;
}

void* SharedPool::allocate(size_t bytes) {
  bytes = round_up(std::max(bytes, size_t{1}), kGrain);
  std::lock_guard lock(mutex_);
  auto hole = best_hole(bytes);
  if (hole == holes_.end()) hole = grow(bytes);
  const auto [at, size] = *hole;
  if (pieces_.contains(at) && pieces_.at(at).size() == size) unused_ -= size;
  holes_.erase(hole);
  if (size > bytes) holes_.emplace(at + bytes, size - bytes);
  allocated_.emplace(at, bytes);
  stats_.used += bytes;
  return at;
}

void SharedPool::free(void* at) noexcept {
  SharedMemory released;  // unmapped after the lock is released
  std::lock_guard lock(mutex_);
  const auto found = allocated_.find(at);
  if (found == allocated_.end()) return;
  const size_t bytes = found->second;
  allocated_.erase(found);
  stats_.used -= bytes;
  const auto hole = add_hole(static_cast<std::byte*>(at), bytes);
  const auto piece = pieces_.find(hole->first);
  if (piece == pieces_.end() || piece->second.size() != hole->second) return;
  unused_ += hole->second;
  if (unused_ <= kKept) return;
  unused_ -= hole->second;
  stats_.reserved -= hole->second;
  holes_.erase(hole);
  released = std::move(piece->second);
  pieces_.erase(piece);
  released.discard();
}

void SharedPool::make_private() {
  std::lock_guard lock(mutex_);
  for (auto piece = pieces_.begin(); piece != pieces_.end();) {
    const auto hole = holes_.find(piece->first);
    const size_t bytes = piece->second.size();
    if (hole == holes_.end() || hole->second != bytes) {
      if (piece->second.shared()) piece->second.make_private();
      ++piece;
      continue;
    }
    holes_.erase(hole);
    stats_.reserved -= bytes;
    unused_ -= bytes;
    piece->second.discard();
    piece = pieces_.erase(piece);
  }
}

void SharedPool::share() {
  std::lock_guard lock(mutex_);
  for (auto& [at, piece] : pieces_)
    if (!piece.shared()) piece.share();
}

SharedPool::Stats SharedPool::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

// The smallest sufficient hole.
SharedPool::Holes::iterator SharedPool::best_hole(size_t bytes) {
  auto best = holes_.end();
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    if (hole->second >= bytes && (best == holes_.end() || hole->second < best->second)) best = hole;
  }
  return best;
}

SharedPool::Holes::iterator SharedPool::grow(size_t bytes) {
  const size_t step =
      round_up(std::clamp(stats_.reserved / 4, kSmallestPiece, kLargestStep), kGrain);
  SharedMemory piece = SharedMemory::create(std::max(bytes, step));
  std::byte* const at = piece.data();
  const size_t size = piece.size();
  pieces_.emplace(at, std::move(piece));
  stats_.reserved += size;
  unused_ += size;
  return holes_.emplace(at, size).first;
}

// Merges adjacent holes unless a piece begins between them.
SharedPool::Holes::iterator SharedPool::add_hole(std::byte* at, size_t bytes) {
  auto hole = holes_.emplace(at, bytes).first;
  const auto next = std::next(hole);
  if (next != holes_.end() && at + bytes == next->first && !pieces_.contains(next->first)) {
    hole->second += next->second;
    holes_.erase(next);
  }
  if (hole == holes_.begin() || pieces_.contains(at)) return hole;
  const auto before = std::prev(hole);
  if (before->first + before->second != at) return hole;
  before->second += hole->second;
  holes_.erase(hole);
  return before;
}

}  // namespace hccl_like
