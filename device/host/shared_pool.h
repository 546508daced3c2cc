#pragma once
// Allocates host memory that peers can map. What is freed is used again, pages and all: a fresh
// page of shared memory takes two microseconds, and a peer would have to map it first.
#include <cstddef>
#include <map>
#include <mutex>
#include <unordered_map>

#include "device/host/shared_memory.h"

namespace hccl_like {

// Blocks are cut from few large pieces of SharedMemory, so that peers have few to map. Any thread.
//
// A forked child begins with an empty pool: what it has from its parent stays the parent's, and
// freeing it does nothing.
class SharedPool {
 public:
  // Blocks are whole multiples of it and begin at one.
  static constexpr size_t kGrain = 4096;
  // Pieces of which nothing is in use are given back to the system when there is more of them than
  // this.
  static constexpr size_t kKept = size_t{256} << 20;

  // The one of this process; never destroyed.
  static SharedPool& of_process();

  SharedPool() = default;
  SharedPool(const SharedPool&) = delete;
  SharedPool& operator=(const SharedPool&) = delete;

  // At least one byte; uninitialised. Throws kSystem if the system has no more.
  void* allocate(size_t bytes);
  // What allocate() gave; anything else is ignored. No call of this process or a peer may be using
  // it.
  void free(void* at) noexcept;

  struct Stats {
    size_t used = 0;      // in blocks that are allocated
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
  Holes holes_;                                  // never two side by side within a piece
  std::unordered_map<void*, size_t> allocated_;  // bytes
  Stats stats_;
  size_t unused_ = 0;  // in pieces of which nothing is allocated
};

}  // namespace hccl_like
