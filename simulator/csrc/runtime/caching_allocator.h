#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "memory/arena_pool.h"
#include "runtime/event.h"

namespace torch_sim {

// A running number with what torch wants to know of it.
struct Counter {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;

  void add(int64_t amount);
  void remove(int64_t amount);
};

// Index 0: small and large together, 1: small, 2: large.
using Counters = std::array<Counter, 3>;

struct AllocatorStats {
  Counters allocations, segments, active, inactive_split;
  Counters allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;
  int64_t retries = 0, failures = 0, segments_taken = 0, segments_returned = 0;
};

// Memory of one device, cached and reused in the manner of c10's allocator for CUDA. A block
// belongs to the stream it was allocated on: freed, it is at once reused by that stream, whose
// order makes that safe, and never by another. A block that other streams used as well
// (`record_use`) is only reused when they have passed the point of its freeing. Small blocks (up to
// 1 MiB) live in segments of their own, so that they do not cut up the large ones.
//
// Thread-safe. Waits for streams only in `empty_cache`, and when memory has run out.
class CachingAllocator {
 public:
  CachingAllocator(const AddressSpace& space, int device, size_t limit);

  // At least one byte. Throws OutOfMemory.
  void* allocate(size_t bytes, Stream& stream);
  // `at` came from `allocate`.
  void free(void* at);
  // The block is used by work of that stream as well.
  void record_use(void* at, Stream& stream);
  // The size that the caller of `allocate` asked for; 0 if `at` did not come from `allocate`.
  size_t bytes_at(void* at) const;

  // Gives all unused memory back to the host. `finish_work` waits for the device: unmapping is not
  // ordered by streams.
  template <typename FinishWork>
  void empty_cache(FinishWork finish_work) {
    finish_work();
    std::lock_guard lock(mutex_);
    release_cache();
  }

  AllocatorStats stats() const;
  void reset_peaks();
  void reset_accumulated();
  // {free, total} bytes of the device.
  std::pair<size_t, size_t> memory_info() const;

  // A peer's arena among the device's addresses; see ArenaPool. Nothing that is queued may use it
  // when it is removed.
  std::byte* add_peer(size_t bytes, Descriptor file, const Nonce& nonce) {
    std::lock_guard lock(mutex_);
    return arenas_.add_peer(bytes, std::move(file), nonce);
  }
  bool remove_peer(void* at) {
    std::lock_guard lock(mutex_);
    return arenas_.remove_peer(static_cast<std::byte*>(at));
  }

  // Whether the arena of the device with that nonce has not been given back to the host.
  bool has_arena(const Nonce& nonce) const {
    std::lock_guard lock(mutex_);
    return arenas_.has(nonce);
  }
  // Calls fn(arena) with the arena that holds the range, or null, while it cannot go away.
  template <typename Fn>
  auto with_arena(const void* at, size_t bytes, Fn fn) const {
    std::lock_guard lock(mutex_);
    return fn(arenas_.find(at, bytes));
  }

 private:
  struct Pool;

  struct Block {
    std::byte* at;
    size_t bytes;
    Stream* stream;
    Pool* pool;
    Block* before = nullptr;  // adjacent blocks in the same segment
    Block* after = nullptr;
    size_t requested = 0;
    bool allocated = false;
    int pending = 0;  // recordings that must pass before it can be reused
    std::set<Stream*> other_uses{};

    bool is_split() const { return before || after; }
    bool reusable() const { return !allocated && pending == 0; }
  };

  struct ByStreamThenSize {
    bool operator()(const Block* a, const Block* b) const;
  };

  struct Pool {
    int index;  // in Counters: 1 small, 2 large
    std::set<Block*, ByStreamThenSize> free;
  };

  void* try_allocate(size_t bytes, Stream& stream);
  void wait_for_cached();

  // All with the lock held.
  Block* find_free(Pool& pool, size_t bytes, Stream& stream);
  Block* take_segment(Pool& pool, size_t bytes, Stream& stream);
  void split(Block* block, size_t bytes);
  void put_back(Block* block);
  void absorb_after(Block* block);
  void insert_free(Block* block);
  void remove_free(Block* block);
  void reap();
  void release_cache();
  void count(Counters& counters, const Pool& pool, int64_t amount);

  mutable std::mutex mutex_;
  ArenaPool arenas_;
  Pool small_{1, {}}, large_{2, {}};
  std::unordered_map<void*, Block*> allocated_;
  std::deque<std::pair<RecordingPtr, Block*>> pending_;
  AllocatorStats stats_;
};

}  // namespace torch_sim
