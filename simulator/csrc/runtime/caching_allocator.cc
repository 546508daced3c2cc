#include "runtime/caching_allocator.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "base/error.h"
#include "memory/host_memory.h"
#include "runtime/stream.h"

namespace torch_sim {
namespace {

constexpr size_t kOneMiB = size_t{1} << 20;
constexpr size_t kAlign = 512;                  // every block's address and size
constexpr size_t kSmall = kOneMiB;              // larger blocks are "large"
constexpr size_t kSmallSegment = 2 * kOneMiB;   // what small blocks are cut from
constexpr size_t kLargeSegment = 20 * kOneMiB;  // what blocks below kOwnSegment are cut from
constexpr size_t kOwnSegment = 10 * kOneMiB;

size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

size_t segment_bytes(size_t bytes) {
  if (bytes <= kSmall) return kSmallSegment;
  return bytes < kOwnSegment ? kLargeSegment : rounded_up(bytes, ArenaPool::kSegment);
}

template <typename Fn>
void for_each_counter(AllocatorStats& stats, Fn fn) {
  for (Counters* counters :
       {&stats.allocations, &stats.segments, &stats.active, &stats.inactive_split,
        &stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes,
        &stats.inactive_split_bytes, &stats.requested_bytes})
    for (Counter& counter : *counters) fn(counter);
}

}  // namespace

void Counter::add(int64_t amount) {
  current += amount;
  allocated += amount;
  peak = std::max(peak, current);
}

void Counter::remove(int64_t amount) {
  current -= amount;
  freed += amount;
}

bool CachingAllocator::ByStreamThenSize::operator()(const Block* a, const Block* b) const {
  return std::tuple(a->stream->id(), a->bytes, a->at) <
         std::tuple(b->stream->id(), b->bytes, b->at);
}

CachingAllocator::CachingAllocator(const AddressSpace& space, int device, size_t limit)
    : arenas_(space, device, limit) {}

void* CachingAllocator::allocate(size_t requested, Stream& stream) {
  try {
    return try_allocate(requested, stream);
  } catch (const OutOfMemory&) {
    wait_for_cached();
    return try_allocate(requested, stream);
  }
}

void* CachingAllocator::try_allocate(size_t requested, Stream& stream) {
  const size_t bytes = rounded_up(std::max(requested, size_t{1}), kAlign);
  Pool& pool = bytes <= kSmall ? small_ : large_;
  std::lock_guard lock(mutex_);
  reap();
  Block* block = find_free(pool, bytes, stream);
  if (!block) block = take_segment(pool, bytes, stream);
  remove_free(block);
  split(block, bytes);
  block->allocated = true;
  block->requested = requested;
  allocated_.emplace(block->at, block);
  count(stats_.allocations, pool, 1);
  count(stats_.active, pool, 1);
  count(stats_.allocated_bytes, pool, static_cast<int64_t>(block->bytes));
  count(stats_.active_bytes, pool, static_cast<int64_t>(block->bytes));
  count(stats_.requested_bytes, pool, static_cast<int64_t>(requested));
  return block->at;
}

void CachingAllocator::free(void* at) {
  std::lock_guard lock(mutex_);
  const auto found = allocated_.find(at);
  Block* block = found->second;
  allocated_.erase(found);
  block->allocated = false;
  count(stats_.allocations, *block->pool, -1);
  count(stats_.allocated_bytes, *block->pool, -static_cast<int64_t>(block->bytes));
  count(stats_.requested_bytes, *block->pool, -static_cast<int64_t>(block->requested));
  for (Stream* stream : block->other_uses) {
    RecordingPtr recording = record_on(*stream);
    if (recording->ready()) continue;
    pending_.emplace_back(std::move(recording), block);
    ++block->pending;
  }
  block->other_uses.clear();
  if (block->reusable()) put_back(block);
}

size_t CachingAllocator::bytes_at(void* at) const {
  std::lock_guard lock(mutex_);
  const auto found = allocated_.find(at);
  return found == allocated_.end() ? 0 : found->second->requested;
}

void CachingAllocator::record_use(void* at, Stream& stream) {
  std::lock_guard lock(mutex_);
  const auto found = allocated_.find(at);
  if (found != allocated_.end() && found->second->stream != &stream)
    found->second->other_uses.insert(&stream);
}

// The smallest free block of the stream that is large enough. A block that owns a large segment is
// not given to a request that would leave a whole shared segment of it unused.
CachingAllocator::Block* CachingAllocator::find_free(Pool& pool, size_t bytes, Stream& stream) {
  Block key{.at = nullptr, .bytes = bytes, .stream = &stream, .pool = &pool};
  const auto found = pool.free.lower_bound(&key);
  if (found == pool.free.end() || (*found)->stream != &stream) return nullptr;
  if (bytes >= kOwnSegment && (*found)->bytes >= bytes + kLargeSegment) return nullptr;
  return *found;
}

CachingAllocator::Block* CachingAllocator::take_segment(Pool& pool, size_t bytes, Stream& stream) {
  const size_t size = segment_bytes(bytes);
  std::byte* at = nullptr;
  try {
    at = arenas_.take(size);
  } catch (const OutOfMemory&) {
    ++stats_.retries;
    release_cache();
    try {
      at = arenas_.take(size);
    } catch (const OutOfMemory&) {
      ++stats_.failures;
      throw;
    }
  }
  ++stats_.segments_taken;
  count(stats_.segments, pool, 1);
  count(stats_.reserved_bytes, pool, static_cast<int64_t>(size));
  Block* block = new Block{.at = at, .bytes = size, .stream = &stream, .pool = &pool};
  insert_free(block);
  return block;
}

void CachingAllocator::split(Block* block, size_t bytes) {
  const size_t rest = block->bytes - bytes;
  if (rest < (block->pool == &small_ ? kAlign : kSmall + 1)) return;
  Block* tail = new Block{.at = block->at + bytes,
                          .bytes = rest,
                          .stream = block->stream,
                          .pool = block->pool,
                          .before = block,
                          .after = block->after};
  if (tail->after) tail->after->before = tail;
  block->after = tail;
  block->bytes = bytes;
  insert_free(tail);
}

void CachingAllocator::put_back(Block* block) {
  count(stats_.active, *block->pool, -1);
  count(stats_.active_bytes, *block->pool, -static_cast<int64_t>(block->bytes));
  if (Block* after = block->after; after && after->reusable()) {
    remove_free(after);
    absorb_after(block);
  }
  if (Block* before = block->before; before && before->reusable()) {
    remove_free(before);
    absorb_after(before);
    block = before;
  }
  insert_free(block);
}

void CachingAllocator::absorb_after(Block* block) {
  Block* gone = block->after;
  block->bytes += gone->bytes;
  block->after = gone->after;
  if (block->after) block->after->before = block;
  delete gone;
}

void CachingAllocator::insert_free(Block* block) {
  block->pool->free.insert(block);
  if (!block->is_split()) return;
  count(stats_.inactive_split, *block->pool, 1);
  count(stats_.inactive_split_bytes, *block->pool, static_cast<int64_t>(block->bytes));
}

void CachingAllocator::remove_free(Block* block) {
  block->pool->free.erase(block);
  if (!block->is_split()) return;
  count(stats_.inactive_split, *block->pool, -1);
  count(stats_.inactive_split_bytes, *block->pool, -static_cast<int64_t>(block->bytes));
}

// Puts back the blocks whose other streams have passed.
void CachingAllocator::reap() {
  std::erase_if(pending_, [&](auto& item) {
    if (!item.first->ready()) return false;
    if (--item.second->pending == 0) put_back(item.second);
    return true;
  });
}

// Waits for the work that keeps freed memory from being given back. Not under the lock: that work
// may free memory.
void CachingAllocator::wait_for_cached() {
  std::set<Stream*> streams;
  std::vector<RecordingPtr> recordings;
  {
    std::lock_guard lock(mutex_);
    for (const Pool* pool : {&small_, &large_})
      for (const Block* block : pool->free) streams.insert(block->stream);
    for (const auto& item : pending_) recordings.push_back(item.first);
  }
  for (Stream* stream : streams) stream->synchronize();
  for (const RecordingPtr& recording : recordings) recording->wait();
}

// Gives whole unused segments back to the arenas, and unused arenas to the host. Freed memory may
// still be used by queued work of its stream, so the segments of a busy stream stay.
void CachingAllocator::release_cache() {
  reap();
  for (Pool* pool : {&small_, &large_}) {
    for (auto it = pool->free.begin(); it != pool->free.end();) {
      Block* block = *it;
      if (block->is_split() || !block->stream->idle()) {
        ++it;
        continue;
      }
      it = pool->free.erase(it);
      count(stats_.segments, *pool, -1);
      count(stats_.reserved_bytes, *pool, -static_cast<int64_t>(block->bytes));
      ++stats_.segments_returned;
      arenas_.give_back(block->at, block->bytes);
      delete block;
    }
  }
  arenas_.trim();
}

AllocatorStats CachingAllocator::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void CachingAllocator::reset_peaks() {
  std::lock_guard lock(mutex_);
  for_each_counter(stats_, [](Counter& counter) { counter.peak = counter.current; });
}

void CachingAllocator::reset_accumulated() {
  std::lock_guard lock(mutex_);
  for_each_counter(stats_, [](Counter& counter) { counter.allocated = counter.freed = 0; });
  stats_.retries = stats_.failures = stats_.segments_taken = stats_.segments_returned = 0;
}

std::pair<size_t, size_t> CachingAllocator::memory_info() const {
  std::lock_guard lock(mutex_);
  const size_t used = static_cast<size_t>(stats_.reserved_bytes[0].current);
  const size_t left = arenas_.limit() - used;
  const size_t from_host = available_host_memory() + arenas_.reserved() - used;
  return {std::min(left, from_host), arenas_.limit()};
}

void CachingAllocator::count(Counters& counters, const Pool& pool, int64_t amount) {
  for (const int index : {0, pool.index})
    amount >= 0 ? counters[index].add(amount) : counters[index].remove(-amount);
}

}  // namespace torch_sim
