#pragma once
// Equal pieces of shared memory, lent one by one.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace hccl_like {

// Those who may still read a piece that its owner is done with. Any thread.
class Readers {
 public:
  virtual ~Readers() = default;
  // Whether none of them needs any more what the owner put there as `use`.
  virtual bool are_done_with(uint32_t use) const = 0;
};

// Any thread. The first pages of a piece are reserved when it is first taken, so that touching them
// cannot fail later; until then it costs address space only. The rest of it comes, as other memory
// of a process does, when it is touched.
class Shelf {
 public:
  // `count` pieces of `bytes` each, of which `reserved` are, from `offset` of the shared memory
  // `fd` on, mapped at `data`. All are borrowed.
  Shelf(int fd, std::byte* data, size_t offset, size_t bytes, size_t reserved, uint32_t count)
      : fd_(fd), data_(data), offset_(offset), bytes_(bytes), reserved_(reserved), count_(count) {}

  // A piece that nobody else has, the one that came back last if any did; nothing if there is none
  // or its memory cannot be had. Readers are asked only where no other is left, or first, if
  // `asks_first`: then it is rather the one that was retired last. What is in it is left over from
  // its last owner, or zeros.
  std::optional<uint32_t> take(bool asks_first = false);
  // Nobody reads it any more.
  void give_back(uint32_t piece);
  // It is given back once its readers are found to be done with `use`. Those of pieces that were
  // retired before are asked here: what they say lies in other cores' caches, and whoever takes a
  // piece need not wait for it then.
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
  uint32_t fresh_ = 0;  // pieces from here on have never been taken
  std::vector<uint32_t> free_;
  std::vector<Retired> retired_;
};

}  // namespace hccl_like
