#include "collectives/same_host/shape.h"

#include <algorithm>

#include "collectives/schedule/layout.h"

namespace hccl_like {
namespace {

// Division granularity: if the payload is aligned, no two ranks write one cache line.
constexpr size_t kShapeGrain = 64;

Shape::Kind kind_of(Collective collective) {
  const Semantics meaning = semantics(collective);
  if (meaning.input == Chunking::kPerRank) return Shape::Kind::kChunks;
  return meaning.reduces ? Shape::Kind::kCut : Shape::Kind::kWhole;
}

size_t pieces_of(Shape::Kind kind, int ranks) {
  return kind == Shape::Kind::kChunks && ranks > 1 ? static_cast<size_t>(ranks - 1) : 1;
}

}  // namespace

size_t Shape::room(Collective collective, int ranks, size_t payload) {
  const size_t grains = std::max<size_t>(1, (payload + kShapeGrain - 1) / kShapeGrain);
  return pieces_of(kind_of(collective), ranks) * grains * kShapeGrain;
}

Shape Shape::of(Collective collective, int ranks, size_t payload, size_t room) {
  Shape shape;
  shape.kind = kind_of(collective);
  shape.ranks = ranks;
  shape.payload = payload;
  shape.block_bytes = room / pieces_of(shape.kind, ranks) / kShapeGrain * kShapeGrain;
  shape.blocks = static_cast<uint32_t>(
      std::max<size_t>(1, (payload + shape.block_bytes - 1) / shape.block_bytes));
  return shape;
}

Span Shape::block(uint32_t number) const {
  const size_t begin = number * block_bytes;
  return within({begin, begin + block_bytes}, payload);
}

Span Shape::share(Span block, int rank) const {
  const size_t grains = (block.bytes() + kShapeGrain - 1) / kShapeGrain;
  const auto at = [&](int i) {
    return std::min(block.end,
                    block.begin + kShapeGrain * even_begin(grains, static_cast<size_t>(i),
                                                           static_cast<size_t>(ranks)));
  };
  return {at(rank), at(rank + 1)};
}

}  // namespace hccl_like
