#pragma once
// How a call is divided; every rank of a large call computes it alike, without a message.
#include <cstddef>
#include <cstdint>

#include "collectives/schedule/collective.h"
#include "core/base/types.h"

namespace hccl_like {

// In bytes.
struct Span {
  size_t begin = 0;
  size_t end = 0;
  size_t bytes() const { return end - begin; }
};

// Part of a range that lies within the first `bytes`.
constexpr Span within(Span range, size_t bytes) {
  return {range.begin < bytes ? range.begin : bytes, range.end < bytes ? range.end : bytes};
}

// The payload is processed in blocks. Offsets are relative to the payload:
//   kCut     the whole input: every rank reduces its share of each block (all_reduce, reduce)
//   kChunks  one of as many chunks as ranks (reduce_scatter, all_to_all, scatter)
//   kWhole   the input of one rank (all_gather, gather, broadcast)
// If chunks differ, the payload is the largest one; others end in an earlier block.
struct Shape {
  enum class Kind : uint8_t { kCut, kChunks, kWhole };

  Kind kind = Kind::kWhole;
  int ranks = 1;
  size_t payload = 0;      // bytes
  size_t block_bytes = 1;  // in every block but the last
  uint32_t blocks = 1;

  // `room`: bytes for one block on each rank, at least 64 for each of the others.
  static Shape of(Collective collective, int ranks, size_t payload, size_t room);
  // The room for which the payload is one block.
  static size_t room(Collective collective, int ranks, size_t payload);

  Span block(uint32_t number) const;
  // Share of a block that `rank` reduces. Only for kCut.
  Span share(Span block, int rank) const;
  // Position, in the room of a block on `owner`, of the bytes from `offset` on for `rank`. With
  // kChunks the owner's own chunk has no position.
  size_t place(Span block, int owner, int rank, size_t offset) const {
    const int chunk = kind == Kind::kChunks ? rank - (rank > owner) : 0;
    return static_cast<size_t>(chunk) * block_bytes + offset - block.begin;
  }
};

}  // namespace hccl_like
