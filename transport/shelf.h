#pragma once
// Equal pieces of shared memory, lent one by one.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace hccl_like {

// Any thread. The first pages of a piece are reserved when it is first taken, so that touching them cannot fail later; until
// then it costs address space only. The rest of it comes, as other memory of a process does, when it is touched.
class Shelf {
 public:
  // `count` pieces of `bytes` each, of which `reserved` are, from `offset` of the shared memory `fd` on, mapped at `data`.
  // All are borrowed.
  Shelf(int fd, std::byte* data, size_t offset, size_t bytes, size_t reserved, uint32_t count)
      : fd_(fd), data_(data), offset_(offset), bytes_(bytes), reserved_(reserved), count_(count) {}

  // A piece that nobody else has, the one that came back last if any did; nothing if there is none or its memory cannot
  // be had. What is in it is left over from its last owner, or zeros.
  std::optional<uint32_t> take();
  // Nobody reads it any more.
  void give_back(uint32_t piece);
  // Somebody may still read it: it is given back once `unread` says so, which take() asks now and then.
  void retire(uint32_t piece, std::function<bool()> unread);
  std::byte* data(uint32_t piece) const { return data_ + size_t{piece} * bytes_; }

 private:
  const int fd_;
  std::byte* const data_;
  const size_t offset_;
  const size_t bytes_;
  const size_t reserved_;
  const uint32_t count_;
  std::mutex mutex_;
  uint32_t fresh_ = 0;  // pieces from here on have never been taken
  std::vector<uint32_t> free_;
  std::vector<std::pair<uint32_t, std::function<bool()>>> retired_;
};

}  // namespace hccl_like
