#include "collectives/registry/algorithms.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace hccl_like {
namespace {

TEST(Algorithms, EveryCollectiveHasOneThatAlwaysFits) {
  for (int i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    for (const int size : {1, 2, 3, 1000, 10'000}) {
      bool found = false;
      for (const Algorithm& algorithm : algorithms(collective)) {
        EXPECT_EQ(algorithm.collective, collective);
        found |= algorithm.fits(size) && !algorithm.equal_chunks;
      }
      EXPECT_TRUE(found) << name(collective) << ", " << size;
    }
  }
}

TEST(Algorithms, NamesAreUniqueAndFound) {
  std::set<std::string_view> collectives;
  for (int i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    EXPECT_TRUE(collectives.insert(name(collective)).second);
    for (const Algorithm& algorithm : algorithms(collective)) {
      EXPECT_EQ(find_algorithm(collective, algorithm.name), &algorithm);
    }
  }
  EXPECT_EQ(find_algorithm(Collective::kAllReduce, "quantum"), nullptr);
  EXPECT_EQ(find_algorithm(Collective::kAllReduce, "bruck"), nullptr);
}

TEST(Algorithms, AreTheDeliveredSet) {
  auto names = [](Collective collective) {
    std::string result;
    for (const Algorithm& algorithm : algorithms(collective))
      result += std::string(algorithm.name) + ' ';
    return result;
  };
  using enum Collective;
  EXPECT_EQ(names(kAllReduce),
            "one_shot direct recursive_doubling rabenseifner ring leaders_one_shot "
            "leaders_doubling rails_direct rails_rabenseifner rails_ring ");
  EXPECT_EQ(names(kReduceScatter),
            "direct recursive_halving ring leaders_direct rails_direct rails_ring ");
  EXPECT_EQ(names(kAllGather), "direct bruck ring leaders_bruck rails_direct rails_ring ");
  EXPECT_EQ(
      names(kBroadcast),
      "binomial scatter_allgather chain leaders_binomial rails_chain rails_scatter_allgather ");
  EXPECT_EQ(names(kReduce), "binomial direct chain leaders_binomial rails_chain ");
  EXPECT_EQ(names(kGather), "direct ");
  EXPECT_EQ(names(kScatter), "direct ");
  EXPECT_EQ(names(kAllToAll), "direct pairwise bruck rails ");
  EXPECT_EQ(names(kBarrier), "dissemination leaders ");
}

// Of a step: that it makes no sum, or one of all inputs.
bool is_at_once(const Step& step, int size) {
  if (step.kind == Step::Kind::kReduce) return step.sources == static_cast<uint32_t>(size);
  return step.kind != Step::Kind::kRecvReduce;
}

TEST(Algorithms, SumAtOnceWhereTheListSaysSo) {
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kReduce})
    for (const Algorithm& algorithm : algorithms(collective))
      for (const Hosts& hosts : {Hosts(3), Hosts(4), Hosts(7), Hosts(8), Hosts::even(2, 2),
                                 Hosts::of(std::vector{0, 1, 0}), Hosts::even(4, 3)}) {
        if (!algorithm.fits(hosts)) continue;
        bool at_once = true;
        for (int root = 0; root < hosts.size(); ++root)
          for (int rank = 0; rank < hosts.size(); ++rank) {
            const Schedule schedule = algorithm.make(rank, hosts, root);
            for (const Step& step : schedule.steps()) at_once &= is_at_once(step, hosts.size());
          }
        EXPECT_EQ(at_once, algorithm.sums_at_once)
            << name(collective) << " " << algorithm.name << " on " << hosts.to_string();
      }
}

TEST(Algorithms, MakeTheSameScheduleEveryTime) {
  const Algorithm& ring = *find_algorithm(Collective::kAllReduce, "ring");
  EXPECT_EQ(ring.make(2, 5, 0), ring.make(2, 5, 0));
  EXPECT_NE(ring.make(2, 5, 0), ring.make(3, 5, 0));
}

TEST(Algorithms, RoundsAreThoseOfTheTextbook) {
  auto rounds = [](Collective collective, const char* name, int size) {
    return find_algorithm(collective, name)->make(0, size, 0).rounds();
  };
  EXPECT_EQ(rounds(Collective::kAllReduce, "ring", 8), 14u);
  EXPECT_EQ(rounds(Collective::kAllReduce, "rabenseifner", 8), 6u);
  EXPECT_EQ(rounds(Collective::kAllReduce, "recursive_doubling", 8), 3u);
  EXPECT_EQ(rounds(Collective::kAllReduce, "direct", 8), 3u);
  EXPECT_EQ(rounds(Collective::kAllGather, "bruck", 9), 4u);
  EXPECT_EQ(rounds(Collective::kBarrier, "dissemination", 9), 4u);
  EXPECT_EQ(rounds(Collective::kBarrier, "dissemination", 1), 0u);
  EXPECT_EQ(rounds(Collective::kBroadcast, "binomial", 10'000), 14u);
}

TEST(Algorithms, TwoRanksAddWhatArrivesWithoutKeepingIt) {
  const Algorithm& direct = *find_algorithm(Collective::kAllReduce, "direct");
  EXPECT_EQ(direct.make(1, 2, 0).to_string(),
            "0: send in[0]->0  recv_reduce in[1]+<-0 to out[1]\n"
            "1: send out[1]->0  recv out[0]<-0\n");
  EXPECT_TRUE(direct.make(1, 2, 0).scratch_like().empty());
}

TEST(Cost, AloneARankCopies) {
  for (const Algorithm& algorithm : algorithms(Collective::kAllReduce)) {
    const Load copied{.reduced = 4096};
    EXPECT_EQ(cost_of(algorithm, Crossings::together(1), 4096),
              (Cost{.path = copied, .busiest = copied}));
  }
}

}  // namespace
}  // namespace hccl_like
