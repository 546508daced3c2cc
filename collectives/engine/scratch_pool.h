#pragma once
// Scratch memory for operations under way.
#include <cstddef>
#include <vector>

namespace hccl_like {

// Recycled blocks of scratch memory, 64-byte aligned, so that no operation touches fresh pages.
// Used by the driver only. At most kKeep bytes stay between operations.
class ScratchPool {
 public:
  ~ScratchPool();
  std::byte* take(size_t bytes);
  void give_back(std::byte* block);

 private:
  static constexpr size_t kKeep = size_t{256} << 20;
  struct Block {
    std::byte* data;
    size_t bytes;
    bool used;
  };
  std::vector<Block> blocks_;
};

}  // namespace hccl_like
