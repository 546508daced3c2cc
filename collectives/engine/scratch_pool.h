#pragma once
// Scratch memory of running operations.
#include <cstddef>
#include <vector>

namespace hccl_like {

// Driver only. Recycles 64-byte-aligned blocks to avoid page faults; keeps at most kKeep bytes.
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
