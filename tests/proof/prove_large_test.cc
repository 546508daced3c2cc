#include "tests/proof/prove_large.h"

#include <gtest/gtest.h>

#include "collectives/verify/simulate.h"
#include "tests/proof/contributions.h"

namespace hccl_like {
namespace {

using Set = Contributions::Set;

TEST(Contributions, RunsThatTouchAreOneRun) {
  Contributions of(8);
  const Set low = of.sum(of.one(1), of.one(0)), high = of.sum(of.one(6), of.one(7));
  EXPECT_EQ(of.sum(low, of.one(2)), of.sum(of.one(0), of.sum(of.one(1), of.one(2))));
  EXPECT_EQ(of.sum(low, high), of.sum(of.sum(of.one(7), low), of.one(6)));  // wraps around
  const Set middle = of.sum(of.sum(of.one(2), of.one(3)), of.sum(of.one(4), of.one(5)));
  EXPECT_EQ(of.sum(of.sum(low, high), middle), of.all());
}

TEST(Contributions, OtherSetsHaveOneNumberEach) {
  Contributions of(16);
  Set up = of.one(0), down = of.one(14);
  for (uint32_t place = 2; place < 16; place += 2) up = of.sum(up, of.one(place));
  for (uint32_t place = 14; place > 0; place -= 2) down = of.sum(down, of.one(place - 2));
  EXPECT_EQ(up, down);
  Set odd = of.one(1);
  for (uint32_t place = 3; place < 16; place += 2) odd = of.sum(odd, of.one(place));
  EXPECT_NE(odd, up);
  EXPECT_EQ(of.sum(odd, up), of.all());
}

TEST(Contributions, WhatCountsTwiceIsWrongForGood) {
  Contributions of(8);
  const Set wrong = Contributions::kWrong, two = of.sum(of.one(3), of.one(4));
  EXPECT_EQ(of.sum(two, of.one(4)), wrong);
  EXPECT_EQ(of.sum(of.sum(two, of.one(6)), of.one(6)), wrong);
  EXPECT_EQ(of.sum(of.all(), of.one(0)), wrong);
  EXPECT_EQ(of.sum(wrong, of.one(0)), wrong);
}

// Little memory: a round or two at a time, some for a part of the ranks.
constexpr size_t kLittle = 2000;

TEST(ProveLarge, ProvesEveryAlgorithmInParts) {
  for (int i = 0; i < kCollectives; ++i) {
    if (is_point_to_point(static_cast<Collective>(i))) continue;
    for (const Algorithm& algorithm : algorithms(static_cast<Collective>(i))) {
      for (const int size : {1, 2, 3, 8, 13, 32}) {
        std::vector<int> by_rank;
        for (int rank = 0; rank < size; ++rank) by_rank.push_back(rank * rank % 7 % 3);
        const Hosts hosts =
            algorithm.fits(2) || algorithm.fits(3) ? Hosts(size) : Hosts::of(by_rank);
        if (!algorithm.fits(hosts)) continue;
        const LargeProof proof =
            prove_large(large_job(algorithm, hosts, size / 2), {.memory = kLittle});
        EXPECT_EQ(proof.fault, "")
            << name(algorithm.collective) << ':' << algorithm.name << ' ' << size;
        if (size == 32 && proof.messages > 500) {
          EXPECT_GT(proof.passes, 5u) << algorithm.name;
        }
      }
    }
  }
}

// The simulator's end by RoundClock's.
double clocks(const Algorithm& algorithm, const Hosts& hosts) {
  const Job job = make_job(algorithm, hosts);
  const Simulation exact = simulate(job, {.hosts = hosts}, {.bytes = 1000 * job.ranks[0].chunks()});
  const LargeProof proof =
      prove_large(large_job(job), {.topology = Topology{.hosts = hosts}, .chunk_bytes = 1000});
  EXPECT_EQ(proof.fault, "");
  return static_cast<double>(exact.makespan_ps) / static_cast<double>(proof.makespan_ps);
}

TEST(ProveLarge, HasTheClockOfTheSimulatorWhereAllRanksKeepStep) {
  for (const auto& [collective, named] : std::vector<std::pair<Collective, std::string_view>>{
           {Collective::kAllReduce, "ring"},
           {Collective::kAllReduce, "one_shot"},
           {Collective::kAllReduce, "direct"},
           {Collective::kReduceScatter, "recursive_halving"},
           {Collective::kAllGather, "direct"},
           {Collective::kAllToAll, "pairwise"},
           {Collective::kBroadcast, "binomial"},
           {Collective::kGather, "direct"},
       })
    for (const Hosts& hosts : {Hosts(8), Hosts::one_rank_each(8)})
      EXPECT_EQ(clocks(*find_algorithm(collective, named), hosts), 1.0)
          << named << ' ' << hosts.to_string();
  for (const char* named : {"leaders_one_shot", "rails_direct", "rails_ring"})
    EXPECT_NEAR(clocks(*find_algorithm(Collective::kAllReduce, named), Hosts::even(4, 2)), 1.0, .1)
        << named;
}

TEST(ProveLarge, HasNoClockIfARoundIsRunInParts) {
  const Algorithm& direct = *find_algorithm(Collective::kAllGather, "direct");
  const LargeProof proof =
      prove_large(large_job(direct, 32), {.memory = kLittle, .topology = Topology{.hosts = 32}});
  EXPECT_EQ(proof.fault, "");
  EXPECT_EQ(proof.makespan_ps, 0u);
}

Job two_ranks_that_exchange() {
  Job job{.collective = Collective::kAllReduce, .ranks = {Schedule(1), Schedule(1)}};
  for (int rank = 0; rank < 2; ++rank) {
    Schedule& s = job.ranks[static_cast<size_t>(rank)];
    const Slot got = s.add_scratch(in(0));
    s.round(send(1 - rank, in(0)), recv(1 - rank, got));
    s.begin_round();
    s.add_reduce(out(0), std::vector{in(0), got});
  }
  return job;
}

TEST(ProveLarge, FindsAContributionThatIsCountedTwice) {
  Job job = two_ranks_that_exchange();
  EXPECT_EQ(prove_large(large_job(job)).fault, "");
  job.ranks[1].begin_round();
  job.ranks[1].add_reduce(scratch(0), std::vector{out(0), in(0)});
  job.ranks[1].round(copy(scratch(0), out(0)));
  EXPECT_EQ(
      prove_large(large_job(job)).fault,
      "rank 1, round 2: reduce out[0]+in[0] to scratch[0] reads input that is written over if "
      "the output is the same memory");
  job.ranks[1] = Schedule(1);
  const Slot got = job.ranks[1].add_scratch(in(0));
  job.ranks[1].round(send(0, in(0)), recv(0, got));
  job.ranks[1].begin_round();
  job.ranks[1].add_reduce(out(0), std::vector{in(0), got, got});
  EXPECT_EQ(prove_large(large_job(job)).fault, "rank 1 of 2: out[0] does not hold what it should");
}

TEST(ProveLarge, FindsMessagesWithoutTheirOtherEnd) {
  Job job = two_ranks_that_exchange();
  job.ranks[1] = Schedule(1);
  job.ranks[1].round(send(0, in(0)));
  EXPECT_EQ(prove_large(large_job(job)).fault,
            "rank 0, round 0: sends a message, but rank 1 has no step in this round that receives "
            "it");
  job.ranks[1] = Schedule(1);
  EXPECT_EQ(prove_large(large_job(job)).fault,
            "rank 0, round 0: receives a message, but rank 1 has no step in this round that sends "
            "it");
}

}  // namespace
}  // namespace hccl_like
