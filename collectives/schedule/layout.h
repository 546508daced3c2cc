#pragma once
// Places of the chunks of one call in memory. List, tensor, coalesced and uneven variants differ in
// layout, not in algorithm.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace hccl_like {

struct Region {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

// Start of part `i` of `parts` equal parts of n elements: n * i / parts, exact for any n.
constexpr size_t even_begin(size_t n, size_t i, size_t parts) {
  return n / parts * i + n % parts * i / parts;
}

// The bytes [begin, end) of part `part` of `parts` equal parts, cut at multiples of `grain`.
struct Part {
  size_t begin = 0;
  size_t end = 0;
};
constexpr Part slice_part(size_t bytes, size_t grain, size_t part, size_t parts) {
  if (parts == 1) return {0, bytes};
  const size_t grains = bytes / grain + (bytes % grain != 0);
  return {std::min(bytes, even_begin(grains, part, parts) * grain),
          std::min(bytes, even_begin(grains, part + 1, parts) * grain)};
}

// Does not own the memory; the caller keeps the regions alive while the layout is used. A layout of
// one region allocates nothing.
class Layout {
 public:
  // No memory; every chunk is empty.
  Layout() = default;
  // Chunk i: elements [n*i/chunks, n*(i+1)/chunks) of the n elements in the concatenated regions.
  static Layout even(std::span<const Region> regions, size_t chunks, size_t element_bytes);
  static Layout even(Region region, size_t chunks, size_t element_bytes);
  // Chunk i is region i. Every region's size must be a multiple of element_bytes.
  static Layout list(std::vector<Region> regions, size_t element_bytes = 1);
  // Chunk i: part i of `chunks` equal parts of every region, concatenated (coalesced all-gather and
  // reduce-scatter). Every region's size must be a multiple of chunks * element_bytes.
  static Layout interleaved(std::span<const Region> regions, size_t chunks, size_t element_bytes);
  // Only `chunk` exists: the concatenation of `regions` (the input of an all-gather).
  static Layout single(std::span<const Region> regions, size_t chunk, size_t element_bytes);

  // The same memory in another number of chunks, which begin at multiples of `grain` bytes, or of
  // elements. Only for even() and layouts of no memory.
  Layout recut(size_t chunks, size_t grain = 0) && {
    chunks_ = chunks;
    grain_ = grain == 0 ? element_bytes_ : grain;
    return std::move(*this);
  }

  size_t element_bytes() const { return element_bytes_; }
  // 0 for a chunk that does not exist.
  size_t bytes(size_t chunk) const { return extent(chunk).bytes; }
  size_t total_bytes() const { return total_; }
  size_t largest_chunk() const;  // bytes

  // Calls visit(Region), in order, for bytes [begin, end) of a chunk; never with an empty region.
  // end <= bytes(chunk).
  template <class Visitor>
  void visit(size_t chunk, size_t begin, size_t end, Visitor&& visit) const;
  // The same range as one region; data == nullptr if it is not contiguous or is empty.
  Region contiguous(size_t chunk, size_t begin, size_t end) const;

 private:
  enum class Kind : uint8_t { kNone, kEven, kList, kInterleaved, kSingle };
  // A chunk: bytes [begin, begin + bytes) of the concatenated shares of the regions.
  struct Extent {
    size_t begin = 0;
    size_t bytes = 0;
  };

  Layout(Kind kind, std::span<const Region> regions, size_t chunks, size_t element_bytes);
  Extent extent(size_t chunk) const;
  std::span<const Region> regions() const {
    return regions_.empty() ? std::span<const Region>(&one_, 1) : std::span<const Region>(regions_);
  }
  size_t start(size_t i) const { return regions_.empty() ? 0 : starts_[i]; }
  size_t region_of(size_t at) const;

  Kind kind_ = Kind::kNone;
  size_t element_bytes_ = 1;
  size_t grain_ = 1;  // kEven
  size_t chunks_ = 0;
  size_t only_chunk_ = 0;  // kSingle
  size_t total_ = 0;
  Region one_;                   // avoids an allocation for one region
  std::vector<Region> regions_;  // two or more; without empty ones, except in a list
  std::vector<size_t> starts_;   // of each region in the concatenation
};

inline Layout::Extent Layout::extent(size_t chunk) const {
  if (chunk >= chunks_) return {};
  switch (kind_) {
    case Kind::kNone:
      return {};
    case Kind::kEven: {
      const Part part = slice_part(total_, grain_, chunk, chunks_);
      return {part.begin, part.end - part.begin};
    }
    case Kind::kList:
      return {0, regions()[chunk].bytes};
    case Kind::kInterleaved:
      return {0, total_ / chunks_};
    case Kind::kSingle:
      return {0, chunk == only_chunk_ ? total_ : 0};
  }
  return {};
}

template <class Visitor>
void Layout::visit(size_t chunk, size_t begin, size_t end, Visitor&& visit) const {
  if (begin >= end) return;
  if (regions_.empty() && kind_ != Kind::kInterleaved) {
    visit(Region{one_.data + extent(chunk).begin + begin, end - begin});
    return;
  }
  const auto parts = regions();
  if (kind_ == Kind::kList) {
    visit(Region{parts[chunk].data + begin, end - begin});
    return;
  }
  // A region of an interleaved layout contributes one of `chunks_` parts; else all of it.
  const size_t shares = kind_ == Kind::kInterleaved ? chunks_ : 1;
  const size_t share = kind_ == Kind::kInterleaved ? chunk : 0;
  const size_t first = extent(chunk).begin;
  begin += first, end += first;
  for (size_t i = region_of(begin * shares); begin < end; ++i) {
    const size_t region_begin = start(i) / shares;
    const size_t region_bytes = parts[i].bytes / shares;
    const size_t stop = std::min(end, region_begin + region_bytes);
    if (stop == begin) continue;
    visit(Region{parts[i].data + share * region_bytes + (begin - region_begin), stop - begin});
    begin = stop;
  }
}

}  // namespace hccl_like
