#include "collectives/schedule/schedule.h"

#include <gtest/gtest.h>

namespace hccl_like {
namespace {

TEST(Schedule, PrintsOneLinePerRound) {
  Schedule s(4);
  s.round(send(1, in(3)), recv_reduce(2, in(0), out(0)));
  s.round(copy(in(1), out(1)), recv(3, out(2), 2));
  EXPECT_EQ(s.to_string(),
            "0: send in[3]->1  recv_reduce in[0]+<-2 to out[0]\n"
            "1: copy in[1] to out[1]  recv out[2..3]<-3\n");
}

TEST(Schedule, KeepsIdleRoundsSoThatNumbersMatch) {
  Schedule s(1);
  s.round();
  s.round(send(1, out(0)), send(2, out(0), /*count=*/0));
  ASSERT_EQ(s.rounds(), 2u);
  EXPECT_TRUE(s.steps(0).empty());
  EXPECT_EQ(s.steps(1).size(), 1u);
  EXPECT_EQ(s.to_string(), "0: idle\n1: send out[0]->1\n");
}

TEST(Schedule, ReducesManySourcesInTheOrderGiven) {
  Schedule s(3);
  const Slot a = s.add_scratch(in(2));
  const Slot b = s.add_scratch(in(2));
  s.begin_round();
  s.add_reduce(out(2), std::vector{a, b, in(2)});
  EXPECT_EQ(s.to_string(), "0: reduce scratch[0]+scratch[1]+in[2] to out[2]\n");
  ASSERT_EQ(s.scratch_like().size(), 2u);
  EXPECT_EQ(s.scratch_like()[1], in(2));
  EXPECT_EQ(s.sources(s.steps(0)[0])[2], in(2));
}

TEST(Schedule, StartsTheFirstRoundByItself) {
  Schedule s(1);
  EXPECT_EQ(s.rounds(), 0u);
  s.add(send(1, in(0)));
  EXPECT_EQ(s.rounds(), 1u);
}

TEST(Schedule, IsAValue) {
  Schedule a(1), b(1);
  a.round(send(1, in(0)));
  b.round(send(1, in(0)));
  EXPECT_EQ(a, b);
  b.round(recv(1, out(0)));
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace hccl_like
