#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/event.h"

namespace torch_sim {

// Host memory that a stream may copy from and to after the call that queued the copy has returned.
// Blocks are cached by size (powers of two). A block that a stream uses (`record_use`) may be freed
// at any time, by any thread and from inside a stream's own work: it is only reused when that
// stream has passed. Nothing here waits.
class PinnedMemory {
 public:
  // At least one byte.
  void* allocate(size_t bytes);
  void free(void* at);
  // False if `inside` is not in an allocated block.
  bool record_use(const void* inside, Stream& stream);
  bool holds(const void* inside) const;

  // Gives unused blocks back to the host.
  void empty_cache();

  struct Stats {
    size_t in_use_blocks = 0, in_use_bytes = 0, peak_bytes = 0, blocks = 0, bytes = 0;
  };
  Stats stats() const;
  void reset_peaks();

 private:
  struct Block {
    size_t bytes;
    std::set<Stream*> uses;
    int pending = 0;
  };
  using Blocks = std::map<const std::byte*, Block>;

  Blocks::iterator find(const void* inside);
  void reap();

  mutable std::mutex mutex_;
  Blocks allocated_;
  std::map<const std::byte*, Block> leaving_;  // freed, but a stream has not passed yet
  std::deque<std::pair<RecordingPtr, const std::byte*>> pending_;
  std::unordered_map<size_t, std::vector<void*>> free_;  // by size
  Stats stats_;
};

}  // namespace torch_sim
