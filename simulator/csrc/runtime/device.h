#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "runtime/caching_allocator.h"
#include "runtime/stream.h"

namespace torch_sim {

// One simulated device: its memory and its streams.
class Device {
 public:
  Device(const AddressSpace& space, int index, size_t memory_limit);

  int index() const { return index_; }
  CachingAllocator& memory() { return memory_; }

  Stream& default_stream() { return *stream(0); }
  // The stream of that id, null if there is none.
  Stream* stream(int64_t id) const;
  // One of a fixed number of shared streams, in turn.
  Stream& pooled_stream(bool high_priority);
  // A stream of its own, as long as there are ids; then a pooled one.
  Stream& new_stream(int priority);

  // Blocks until all streams have done what is queued now.
  void synchronize();

 private:
  static constexpr int64_t kPool = 32;  // streams for each of the two priorities
  static constexpr int64_t kFirstOwn = 1 + 2 * kPool;
  static constexpr int64_t kStreams = 4096;

  Stream& make(int64_t id, int priority);

  const int index_;
  CachingAllocator memory_;
  std::mutex making_;
  std::array<std::atomic<Stream*>, kStreams> streams_{};
  std::atomic<int64_t> next_own_{kFirstOwn};
  std::array<std::atomic<uint32_t>, 2> next_pooled_{};
};

}  // namespace torch_sim
