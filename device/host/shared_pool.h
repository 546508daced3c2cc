#pragma once
// Allocator for host memory that peers can map. Reuses freed pages: a new shared page takes two
// microseconds, plus a mapping in each peer.
#include <cstddef>
#include <map>
#include <mutex>
#include <unordered_map>

#include "device/host/shared_memory.h"

namespace hccl_like {

// Cuts blocks from few large pieces of SharedMemory, so that peers map few pieces. Thread-safe.
//
// A forked child starts with an empty pool; free() of inherited blocks does nothing.
class SharedPool {
 public:
  // Alignment and granularity of blocks.
  static constexpr size_t kGrain = 4096;
  // Returns unused pieces to the system if they exceed this total.
  static constexpr size_t kKept = size_t{256} << 20;

  // The process-wide pool; never destroyed.
  static SharedPool& of_process();

  SharedPool() = default;
  SharedPool(const SharedPool&) = delete;
  SharedPool& operator=(const SharedPool&) = delete;

  // At least one byte, uninitialised. Throws kSystem if out of memory.
  void* allocate(size_t bytes);
  // Frees a block of allocate(); ignores other addresses. No call of this process or a peer may
  // still use the block.
  void free(void* at) noexcept;

  // Keeps no descriptor and nothing that peers could map: returns unused pieces to the system, and
  // makes the others ordinary memory (SharedMemory::make_private()), at the same addresses. No
  // thread writes to blocks meanwhile. Throws kSystem.
  void make_private();
  // Peers can map the blocks again. No thread writes to blocks meanwhile. Throws kSystem.
  void share();

  struct Stats {
    size_t used = 0;      // in allocated blocks
    size_t reserved = 0;  // taken from the system
  };
  Stats stats() const;

 private:
  using Holes = std::map<std::byte*, size_t>;  // bytes, by address

  Holes::iterator best_hole(size_t bytes);
  Holes::iterator grow(size_t bytes);
  Holes::iterator add_hole(std::byte* at, size_t bytes);

  mutable std::mutex mutex_;
  std::map<std::byte*, SharedMemory> pieces_;    // by address
  Holes holes_;                                  // never two adjacent ones in a piece
  std::unordered_map<void*, size_t> allocated_;  // bytes
  Stats stats_;
  size_t unused_ = 0;  // in pieces without allocated blocks
};

}  // namespace hccl_like
