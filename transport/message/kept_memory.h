#pragma once
// Memory of ended calls to which a peer may still write.
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace hccl_like {

// A peer that is stopped in the middle of a copy finishes the copy whenever it continues. Until
// then the memory must not be reused. Any thread.
class KeptMemory {
 public:
  // The singleton of this process; never destroyed.
  static KeptMemory& of_process();

  // Keeps `memory` until a sweep() finds `writes()` false. `writes` owns the data that it reads.
  void add(std::shared_ptr<void> memory, std::function<bool()> writes);
  // Releases memory without writers. May free torch memory: hold no lock of this library.
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
