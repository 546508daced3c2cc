#pragma once
// Test support for the board: calls on vectors of integers.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "collectives/board/board.h"
#include "collectives/testing/on_ranks.h"

namespace hccl_like::testing {

using Ints = std::vector<int64_t>;

inline Layout whole(Ints& data) { return Layout::even(region(data), 1, sizeof(int64_t)); }
inline Layout chunks(Ints& data, int ranks) {
  return Layout::even(region(data), static_cast<size_t>(ranks), sizeof(int64_t));
}
inline Layout own(Ints& data, int rank) {
  const Region all = region(data);
  return Layout::single({&all, 1}, static_cast<size_t>(rank), sizeof(int64_t));
}

inline Call all_reduce(Ints& data) {
  return {.collective = Collective::kAllReduce,
          .type = DataType::kInt64,
          .input = whole(data),
          .output = whole(data)};
}

inline Call broadcast(Ints& data, int root) {
  return {.collective = Collective::kBroadcast,
          .type = DataType::kInt64,
          .root = root,
          .input = whole(data),
          .output = whole(data)};
}

// The first call opens the board.
inline void open(Rank me) {
  me.communicator.run({.collective = Collective::kBarrier});
  ASSERT_TRUE(me.communicator.board()->is_open());
}

}  // namespace hccl_like::testing
