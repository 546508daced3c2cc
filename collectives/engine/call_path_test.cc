#include "collectives/engine/call_path.h"

#include <gtest/gtest.h>

#include "collectives/board/area.h"

namespace hccl_like {
namespace {

using enum Collective;
constexpr size_t kMost = BoardArea::kPayloadBytes;  // that a rank shows on the board
constexpr CallPathOptions kOneHost{.board = true};

TEST(CallPath, SmallCallsOfOneHostGoOverTheBoardAndLargeOnesDirect) {
  for (const Collective collective :
       {kAllReduce, kReduce, kBroadcast, kReduceScatter, kAllToAll, kScatter}) {
    EXPECT_EQ(call_path(collective, kMost, 2, kOneHost), CallPath::kBoard) << name(collective);
    EXPECT_EQ(call_path(collective, kMost + 2, 2, kOneHost), CallPath::kLarge) << name(collective);
  }
  for (const Collective collective : {kAllGather, kGather}) {  // a rank shows its own part only
    EXPECT_EQ(call_path(collective, 2 * kMost, 2, kOneHost), CallPath::kBoard) << name(collective);
    EXPECT_EQ(call_path(collective, 2 * kMost + 2, 2, kOneHost), CallPath::kLarge)
        << name(collective);
  }
  EXPECT_EQ(call_path(kBarrier, 0, 2, kOneHost), CallPath::kBoard);
}

TEST(CallPath, MessagesCarryWhatTheUserOrTheGroupAsksFor) {
  for (const size_t bytes : {size_t{8}, kMost + 8}) {
    EXPECT_EQ(call_path(kAllReduce, bytes, 2, {}), CallPath::kMessages) << "no board";
    EXPECT_EQ(call_path(kAllReduce, bytes, 2, {.board = true, .forced = true}),
              CallPath::kMessages);
    EXPECT_EQ(call_path(kAllReduce, bytes, 65, kOneHost), CallPath::kMessages)
        << "a board takes 64";
    EXPECT_EQ(call_path(kSend, bytes, 2, kOneHost), CallPath::kMessages);
  }
  const CallPathOptions no_direct{.board = true, .direct = false};
  EXPECT_EQ(call_path(kAllReduce, kMost, 2, no_direct), CallPath::kBoard);
  EXPECT_EQ(call_path(kAllReduce, kMost + 4, 2, no_direct), CallPath::kMessages);
}

}  // namespace
}  // namespace hccl_like
