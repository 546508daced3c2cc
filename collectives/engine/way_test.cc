#include "collectives/engine/way.h"

#include <gtest/gtest.h>

#include "collectives/board/area.h"

namespace hccl_like {
namespace {

using enum Collective;
constexpr size_t kMost = BoardArea::kPayloadBytes;  // that a rank shows on the board
constexpr WayOptions kOneHost{.board = true};

TEST(Way, SmallCallsOfOneHostGoOverTheBoardAndLargeOnesDirect) {
  for (const Collective collective :
       {kAllReduce, kReduce, kBroadcast, kReduceScatter, kAllToAll, kScatter}) {
    EXPECT_EQ(way_of(collective, kMost, 2, kOneHost), Way::kBoard) << name(collective);
    EXPECT_EQ(way_of(collective, kMost + 2, 2, kOneHost), Way::kLarge) << name(collective);
  }
  for (const Collective collective : {kAllGather, kGather}) {  // a rank shows its own part only
    EXPECT_EQ(way_of(collective, 2 * kMost, 2, kOneHost), Way::kBoard) << name(collective);
    EXPECT_EQ(way_of(collective, 2 * kMost + 2, 2, kOneHost), Way::kLarge) << name(collective);
  }
  EXPECT_EQ(way_of(kBarrier, 0, 2, kOneHost), Way::kBoard);
}

TEST(Way, MessagesCarryWhatTheUserOrTheGroupAsksFor) {
  for (const size_t bytes : {size_t{8}, kMost + 8}) {
    EXPECT_EQ(way_of(kAllReduce, bytes, 2, {}), Way::kMessages) << "no board";
    EXPECT_EQ(way_of(kAllReduce, bytes, 2, {.board = true, .forced = true}), Way::kMessages);
    EXPECT_EQ(way_of(kAllReduce, bytes, 65, kOneHost), Way::kMessages) << "a board takes 64";
    EXPECT_EQ(way_of(kSend, bytes, 2, kOneHost), Way::kMessages);
  }
  const WayOptions no_direct{.board = true, .direct = false};
  EXPECT_EQ(way_of(kAllReduce, kMost, 2, no_direct), Way::kBoard);
  EXPECT_EQ(way_of(kAllReduce, kMost + 4, 2, no_direct), Way::kMessages);
}

}  // namespace
}  // namespace hccl_like
