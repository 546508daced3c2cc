#include "collectives/same_host/shape.h"

#include <gtest/gtest.h>

namespace hccl_like {
namespace {

// A rank's chunk for itself takes no room in the staging buffer. So two ranks pass through twice as
// much of the buffer, with chunks that the peer read as long ago as possible.
TEST(Shape, TheChunksForTheOthersFillABlocksRoom) {
  constexpr size_t kPayload = 1000, kChunk = 1024;  // whole cache lines
  for (const int ranks : {2, 3, 5}) {
    const size_t room = Shape::room(Collective::kAllToAll, ranks, kPayload);
    EXPECT_EQ(room, kChunk * static_cast<size_t>(ranks - 1));
    const Shape shape = Shape::of(Collective::kAllToAll, ranks, kPayload, room);
    EXPECT_EQ(shape.blocks, 1u);
    for (int owner = 0; owner < ranks; ++owner) {
      size_t expected = 8;
      for (int rank = 0; rank < ranks; ++rank) {
        if (rank == owner) continue;
        EXPECT_EQ(shape.place(shape.block(0), owner, rank, 8), expected) << owner << " to " << rank;
        expected += kChunk;
      }
    }
  }
}

TEST(Shape, OffsetsCountFromTheBeginningOfASlice) {
  const Shape shape = Shape::of(Collective::kAllToAll, 3, 1000, 2 * 448);
  ASSERT_EQ(shape.blocks, 3u);
  EXPECT_EQ(shape.block(2).begin, 896u);
  EXPECT_EQ(shape.block(2).end, 1000u);
  EXPECT_EQ(shape.place(shape.block(2), 0, 2, 900), 448u + 4u);
}

TEST(Shape, WhatAllReduceShowsLiesWhereItIsInThePayload) {
  const Shape shape = Shape::of(Collective::kAllReduce, 4, 4096, 4096);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(shape.place(shape.block(0), 1, rank, 1024), 1024u);
}

}  // namespace
}  // namespace hccl_like
