#pragma once
// Memory of calls that ended while a peer was still writing to it.
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace hccl_like {

// A peer that was stopped in the middle of a copy goes on with the copy when it is continued,
// however long that takes. The memory must not be handed out again before. Any thread.
class KeptMemory {
 public:
  // The one of this process; never destroyed.
  static KeptMemory& of_process();

  // Keeps `memory` until a sweep() finds that `writes` is false. `writes` holds what it reads.
  void add(std::shared_ptr<void> memory, std::function<bool()> writes);
  // Releases what nobody writes to any more. May free memory of torch: no lock of this library may
  // be held. Next to nothing where nothing is kept.
  void sweep();
  size_t size() const { return size_.load(std::memory_order_relaxed); }

 private:
  struct Kept {
    std::shared_ptr<void> memory;
    std::function<bool()> writes;
  };

  std::mutex mutex_;
  std::vector<Kept> kept_;
  std::atomic<size_t> size_{0};
};

}  // namespace hccl_like
