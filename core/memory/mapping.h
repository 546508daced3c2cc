#pragma once
// Owner of a memory mapping.
#include <cstddef>
#include <span>

namespace hccl_like {

class Mapping {
 public:
  Mapping() noexcept = default;
  // Takes ownership of an existing mapping.
  Mapping(void* address, size_t bytes) noexcept
      : data_(static_cast<std::byte*>(address)), bytes_(bytes) {}
  // mmap(nullptr, ...) with these arguments. `bytes` must not be 0. Throws kSystem.
  static Mapping map(int fd, size_t bytes, int protection, int flags, size_t offset = 0);

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const noexcept { return data_; }
  size_t size() const noexcept { return bytes_; }
  bool valid() const noexcept { return data_ != nullptr; }
  std::span<std::byte> span() const noexcept { return {data_, bytes_}; }
  // Moves the pages to the address of `place`, which has the same size and loses its own; empty
  // afterwards. Threads that read there see the same content if both have it. Throws kSystem.
  void move_onto(const Mapping& place);
  // Unmaps; empty afterwards.
  void reset() noexcept;

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace hccl_like
