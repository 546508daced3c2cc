#pragma once
// Which of two ways of a large copy is faster on this machine, learnt from the copies themselves.
//
// A copy by the kernel moves every byte once, one through shared memory twice. Where cores share a fast cache the second copy
// costs nothing and the kernel's pages do; where lines cross slowly it is the other way round, by a factor of two
// and more. No size of a cache tells.
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace hccl_like {

enum class CopyWay : uint8_t { kShared, kKernel };

// Any thread; what two learn at once may be learnt once.
class Pace {
 public:
  Pace() = default;
  ~Pace();
  Pace(const Pace&) = delete;
  Pace& operator=(const Pace&) = delete;

  // Shorter copies are made through shared memory.
  static constexpr size_t kLeast = 128 << 10;

  // What to take for a copy of this size. Those who copy together, and learn of the same copies, try what is slower at the
  // same time.
  CopyWay choose(size_t bytes) const;
  void learn(size_t bytes, CopyWay way, std::chrono::nanoseconds took);

 private:
  // Powers of two from kLeast; beyond the last one it makes no difference.
  static constexpr size_t kSizes = 12;
  struct Record {
    std::atomic<uint32_t> copies{0};
    // In ns; grows a little with each copy that took longer, so that it is forgotten.
    std::atomic<int64_t> least{0};
  };
  using Ways = std::array<Record, 2>;  // by CopyWay
  using Records = std::array<Ways, kSizes>;
  static size_t size_of_copy(size_t bytes);

  // Null until something was learnt: most groups never copy that much.
  std::atomic<Records*> records_{nullptr};
};

}  // namespace hccl_like
