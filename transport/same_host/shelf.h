#pragma once
// Fixed-size pieces of shared memory, lent one at a time.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace hccl_like {

// Processes that may still read a piece after its owner has finished with it. Any thread.
class Readers {
 public:
  virtual ~Readers() = default;
  // Whether no reader needs the data of generation `use` any more.
  virtual bool are_done_with(uint32_t use) const = 0;
};

// Any thread. The first pages of a piece are reserved at its first use, so that touching them
// cannot fail later. The other pages are allocated when touched.
class Shelf {
 public:
  // `count` pieces of `bytes` bytes each, of which `reserved` are reserved in advance. `fd` is the
  // shared memory, mapped at `data` from `offset` on. All are borrowed.
  Shelf(int fd, std::byte* data, size_t offset, size_t bytes, size_t reserved, uint32_t count)
      : fd_(fd), data_(data), offset_(offset), bytes_(bytes), reserved_(reserved), count_(count) {}

  // Returns the piece that came back last, else a new one; nothing if none is left or memory is
  // exhausted. Checks the readers of retired pieces only if no returned piece is free, or with
  // `asks_first`. The contents are the last owner's data or zeros.
  std::optional<uint32_t> take(bool asks_first = false);
  // Requires that no process reads the piece any more.
  void give_back(uint32_t piece);
  // Returns the piece once its readers have finished with `use`. Also checks pieces retired
  // earlier, so that take() need not wait for the cache lines of other cores.
  void retire(uint32_t piece, std::shared_ptr<const Readers> readers, uint32_t use);
  std::byte* data(uint32_t piece) const { return data_ + size_t{piece} * bytes_; }

 private:
  struct Retired {
    uint32_t piece;
    uint32_t use;
    std::shared_ptr<const Readers> readers;
  };
  void ask_readers();

  const int fd_;
  std::byte* const data_;
  const size_t offset_;
  const size_t bytes_;
  const size_t reserved_;
  const uint32_t count_;
  std::mutex mutex_;
  uint32_t fresh_ = 0;  // pieces from here on were never taken
  std::vector<uint32_t> free_;
  std::vector<Retired> retired_;
};

}  // namespace hccl_like
