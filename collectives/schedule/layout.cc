#include "collectives/schedule/layout.h"

namespace hccl_like {

Layout::Layout(Kind kind, std::span<const Region> regions, size_t chunks, size_t element_bytes)
    : kind_(kind), element_bytes_(element_bytes), grain_(element_bytes), chunks_(chunks) {
  if (regions.size() == 1) {
    one_ = regions[0];
    total_ = one_.bytes;
    return;
  }
  regions_.reserve(regions.size());
  starts_.reserve(regions.size());
  for (const Region& region : regions) {
    if (region.bytes == 0 && kind != Kind::kList) continue;
    regions_.push_back(region);
    starts_.push_back(total_);
    total_ += region.bytes;
  }
}

Layout Layout::even(std::span<const Region> regions, size_t chunks, size_t element_bytes) {
  return Layout(Kind::kEven, regions, chunks, element_bytes);
}

Layout Layout::even(Region region, size_t chunks, size_t element_bytes) {
  return Layout(Kind::kEven, {&region, 1}, chunks, element_bytes);
}

Layout Layout::list(std::vector<Region> regions, size_t element_bytes) {
  return Layout(Kind::kList, regions, regions.size(), element_bytes);
}

Layout Layout::interleaved(std::span<const Region> regions, size_t chunks, size_t element_bytes) {
  return Layout(Kind::kInterleaved, regions, chunks, element_bytes);
}

Layout Layout::single(std::span<const Region> regions, size_t chunk, size_t element_bytes) {
  Layout layout(Kind::kSingle, regions, chunk + 1, element_bytes);
  layout.only_chunk_ = chunk;
  return layout;
}

size_t Layout::largest_chunk() const {
  if (chunks_ == 0) return 0;
  if (kind_ == Kind::kSingle) return total_;
  if (kind_ == Kind::kInterleaved) return total_ / chunks_;
  if (kind_ == Kind::kEven) {
    const size_t elements = total_ / element_bytes_;
    return (elements / chunks_ + (elements % chunks_ != 0)) * element_bytes_;
  }
  const auto all = regions();
  return std::ranges::max(all, {}, &Region::bytes).bytes;
}

size_t Layout::region_of(size_t at) const {
  if (regions_.empty()) return 0;
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), at);
  return static_cast<size_t>(after - starts_.begin()) - 1;
}

Region Layout::contiguous(size_t chunk, size_t begin, size_t end) const {
  Region whole;
  size_t pieces = 0;
  visit(chunk, begin, end, [&](Region piece) {
    // Merges regions that are adjacent in memory.
    if (pieces > 0 && whole.data + whole.bytes == piece.data) {
      whole.bytes += piece.bytes;
      return;
    }
    if (pieces == 0) whole = piece;
    ++pieces;
  });
  return pieces == 1 ? whole : Region{};
}

}  // namespace hccl_like
