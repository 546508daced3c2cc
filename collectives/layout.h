#pragma once
// Where the chunks of one call lie in memory. List, tensor, coalesced and uneven variants are layouts, not algorithms.
#include <cstddef>
#include <span>
#include <vector>

namespace hccl_like {

struct Region {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

class Layout {
 public:
  // No memory at all; every chunk is empty.
  Layout() = default;
  // Chunk i holds elements [n*i/chunks, n*(i+1)/chunks) of the concatenated regions, n elements in all.
  static Layout even(std::span<const Region> regions, size_t chunks, size_t element_bytes);
  static Layout even(Region region, size_t chunks, size_t element_bytes);
  // Chunk i is region i.
  static Layout list(std::vector<Region> regions);
  // Chunk i is the i-th of `chunks` equal parts of every region, one after the other (coalesced all-gather and
  // reduce-scatter). Every region's size is a multiple of chunks * element_bytes.
  static Layout interleaved(std::span<const Region> regions, size_t chunks, size_t element_bytes);
  // Only chunk `chunk` exists; it is the concatenation of `regions` (the input of an all-gather).
  static Layout single(std::span<const Region> regions, size_t chunk, size_t element_bytes);

  size_t element_bytes() const { return element_bytes_; }
  size_t bytes(size_t chunk) const;
  size_t total_bytes() const;
  size_t largest_chunk() const;  // bytes

  // Calls visit(Region) for the memory of bytes [begin, end) of a chunk, in order.
  template <class Visitor>
  void visit(size_t chunk, size_t begin, size_t end, Visitor&& visit) const;
  // The same as a contiguous region if it is one; data == nullptr if it is not.
  Region contiguous(size_t chunk, size_t begin, size_t end) const;

 private:
  // implementation chosen by the owner of this file
  size_t element_bytes_ = 1;
};

// The part of `bytes` that lap `lap` of `laps` carries, cut at element boundaries: [begin, end).
struct Part {
  size_t begin = 0;
  size_t end = 0;
};
Part lap_part(size_t bytes, size_t element_bytes, size_t lap, size_t laps);

}  // namespace hccl_like
