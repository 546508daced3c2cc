#include "collectives/selection/choose.h"

#include <gtest/gtest.h>

#include "collectives/verify/simulate.h"
#include "core/base/error.h"

namespace hccl_like {
namespace {

using enum Collective;

constexpr uint64_t kBytes[] = {0,      1,        8,       1000,     1 << 10,
                               10'000, 64 << 10, 1 << 20, 16 << 20, 256 << 20};

std::string complaint(Collective collective, int size, const ChooseOptions& options) {
  try {
    choose(collective, 1000, 4, Topology::one_host(size), options);
  } catch (const Exception& exception) {
    EXPECT_EQ(exception.code(), ErrorCode::kMisuse);
    return exception.error().message;
  }
  return "";
}

std::string_view chosen(Collective collective, uint64_t bytes, const Topology& topology) {
  return choose(collective, bytes, 4, topology).algorithm->name;
}

TEST(Choose, TakesTheForcedAlgorithm) {
  const Choice choice = choose(kAllReduce, 8, 4, Topology::one_host(3), {.forced = "ring"});
  EXPECT_EQ(choice.algorithm, find_algorithm(kAllReduce, "ring"));
}

TEST(Choose, SaysWhichAlgorithmsThereAre) {
  EXPECT_EQ(complaint(kAllReduce, 4, {.forced = "tree"}),
            "there is no all_reduce algorithm \"tree\"; use one of: one_shot, direct, "
            "recursive_doubling, "
            "rabenseifner, ring");
  EXPECT_EQ(
      complaint(kReduceScatter, 6, {.forced = "recursive_halving"}),
      "the reduce_scatter algorithm \"recursive_halving\" does not work for 6 ranks on one host; "
      "use one of: direct, ring");
  EXPECT_EQ(
      complaint(kAllToAll, 6, {.forced = "bruck", .uneven = true}),
      "the all_to_all algorithm \"bruck\" needs chunks of one size; use one of: direct, pairwise");
}

TEST(Choose, TakesOneOrderOfSummationIfResultsMustBeDeterministic) {
  for (const Collective collective : {kAllReduce, kReduceScatter, kReduce})
    for (const Topology& topology :
         {Topology::one_host(2), Topology::one_rank_a_host(64), Topology::one_host(1000)})
      for (const uint64_t bytes : kBytes) {
        const Choice choice =
            choose(collective, bytes, 4, topology, {.deterministic = true, .simulate = true});
        EXPECT_TRUE(choice.algorithm->sums_at_once) << explain(choice);
      }
  EXPECT_EQ(choose(kBroadcast, 8, 4, Topology::one_host(8), {.deterministic = true}),
            choose(kBroadcast, 8, 4, Topology::one_host(8)));
  EXPECT_EQ(complaint(kAllReduce, 4, {.forced = "ring", .deterministic = true}),
            "the all_reduce algorithm \"ring\" sums in another order than the others, and "
            "deterministic results were asked for; use one of: one_shot, direct");
}

TEST(Choose, PrefersFewRoundsForLittleAndFewBytesForMuch) {
  const Topology tcp = Topology::one_rank_a_host(64);
  EXPECT_EQ(chosen(kAllReduce, 8, tcp), "recursive_doubling");
  EXPECT_EQ(chosen(kAllReduce, 1 << 20, tcp), "rabenseifner");
  EXPECT_EQ(chosen(kAllReduce, 8, Topology::one_host(2)), "one_shot");
  EXPECT_EQ(chosen(kAllReduce, 16 << 20, Topology::one_host(2)), "direct");
  EXPECT_EQ(chosen(kBroadcast, 8, Topology::one_host(8)), "binomial");
  EXPECT_EQ(chosen(kBroadcast, 256 << 20, Topology::one_host(8)), "chain");
  EXPECT_EQ(chosen(kReduce, 256 << 20, Topology::one_host(8)), "chain");
  EXPECT_EQ(chosen(kAllGather, 8000, Topology::one_rank_a_host(1000)), "bruck");
  EXPECT_EQ(chosen(kAllToAll, 64 * 8, tcp), "bruck");
  EXPECT_EQ(chosen(kAllToAll, 1'000'000'000, Topology::one_rank_a_host(1000)), "pairwise");
}

// The table of docs/algorithms.md.
TEST(Choose, IsAsDocumented) {
  auto row = [](const Topology& topology) {
    std::string result;
    for (const uint64_t bytes : {8, 1 << 10, 16 << 10, 64 << 10, 1 << 20, 16 << 20}) {
      result += std::string(chosen(kAllReduce, bytes, topology)) + ' ';
    }
    return result;
  };
  EXPECT_EQ(row(Topology::one_host(2)), "one_shot one_shot one_shot direct direct direct ");
  EXPECT_EQ(row(Topology::one_host(4)), "one_shot one_shot direct direct direct direct ");
  EXPECT_EQ(row(Topology::one_host(8)), "one_shot recursive_doubling direct direct direct direct ");
  EXPECT_EQ(row(Topology::one_host(64)),
            "recursive_doubling recursive_doubling rabenseifner rabenseifner direct rabenseifner ");
  EXPECT_EQ(row(Topology::one_rank_a_host(2)),
            "one_shot one_shot one_shot one_shot direct direct ");
  EXPECT_EQ(row(Topology::one_rank_a_host(4)),
            "one_shot one_shot recursive_doubling direct direct direct ");
  EXPECT_EQ(row(Topology::one_rank_a_host(8)),
            "one_shot one_shot recursive_doubling direct direct direct ");
  EXPECT_EQ(row(Topology::one_rank_a_host(64)),
            "recursive_doubling recursive_doubling recursive_doubling rabenseifner rabenseifner "
            "rabenseifner ");
}

// Measured between namespaces of a machine of two cores: docs/decisions/0011-tcp.md.
TEST(Choose, CountsMessagesWhereHostsAreContainersOfOneMachine) {
  const ChooseOptions options{.slice_bytes = 4 << 20, .simulate = true};
  const auto fastest = [&](int hosts, uint64_t bytes) {
    return choose(kAllReduce, bytes, 4, Topology::one_machine(hosts, 2), options).algorithm->name;
  };
  for (const uint64_t bytes : {8, 1 << 10, 16 << 10, 64 << 10})
    EXPECT_EQ(fastest(4, bytes), "recursive_doubling") << bytes;
  for (const uint64_t bytes : {256 << 10, 1 << 20, 16 << 20})
    EXPECT_EQ(fastest(4, bytes), "rabenseifner") << bytes;
  EXPECT_EQ(fastest(2, 8), "one_shot");
}

TEST(Choose, HasOneSliceUnderWayWhereNothingIsEverOnItsWay) {
  EXPECT_EQ(Topology::one_machine(4, 2).slices_at_once(4), 1u);
  EXPECT_EQ(Topology::one_rank_a_host(4).slices_at_once(4), 4u);
  EXPECT_EQ(Topology::one_host(4, 2).slices_at_once(4), 4u);
  EXPECT_EQ(Topology::one_host(4, 2).slices_at_once(0), 1u);
}

// The table for several hosts there.
TEST(Choose, IsAsDocumentedForSeveralHosts) {
  auto row = [](const Hosts& hosts) {
    std::string result;
    for (const uint64_t bytes : {8, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 16 << 20}) {
      const Choice choice =
          choose(kAllReduce, bytes, 4, Topology{.hosts = hosts}, {.simulate = true});
      result += std::string(choice.algorithm->name) + ' ';
    }
    return result;
  };
  EXPECT_EQ(
      row(Hosts::even(2, 4)),
      "leaders_one_shot leaders_one_shot leaders_one_shot rails_direct rails_direct rabenseifner ");
  EXPECT_EQ(
      row(Hosts::even(4, 4)),
      "leaders_one_shot leaders_one_shot leaders_one_shot rails_rabenseifner ring rails_direct ");
}

TEST(Choose, IsTheFirstCandidateAndWithinThreePercentOfTheFastest) {
  for (int i = 0; i < kCollectives; ++i) {
    for (const int size : {1, 2, 3, 8, 33, 1000}) {
      for (const uint64_t bytes : kBytes) {
        const Topology topology = Topology::one_host(size, 2);
        const auto all = candidates(static_cast<Collective>(i), bytes, 4, topology);
        EXPECT_EQ(choose(static_cast<Collective>(i), bytes, 4, topology), all.front());
        for (const Choice& other : all) {
          EXPECT_LE(all.front().estimate_ps, other.estimate_ps + other.estimate_ps / 32);
        }
      }
    }
  }
}

TEST(Choose, MoreBytesNeverTakeLess) {
  for (int i = 0; i < kCollectives; ++i) {
    for (const int size : {1, 2, 5, 16, 100}) {
      for (const Topology& topology :
           {Topology::one_host(size, 2), Topology::one_rank_a_host(size)}) {
        uint64_t before = 0;
        for (const uint64_t bytes : kBytes) {
          const uint64_t now = choose(static_cast<Collective>(i), bytes, 4, topology).estimate_ps;
          // The order of the list may cost three per cent, and large slices a quarter.
          EXPECT_GE(now + now / 3, before)
              << name(static_cast<Collective>(i)) << ", " << size << ", " << bytes;
          before = now;
        }
      }
    }
  }
}

TEST(Choose, CutsLargePayloadsIntoSlices) {
  const Topology topology = Topology::one_host(2);
  EXPECT_EQ(choose(kAllReduce, 1 << 20, 4, topology).slices, 1u);
  EXPECT_EQ(choose(kAllReduce, (1 << 20) + 4, 4, topology).slices, 2u);
  EXPECT_EQ(choose(kAllReduce, 16 << 20, 4, topology).slices, 16u);
  EXPECT_EQ(choose(kAllReduce, 16 << 20, 4, topology, {.slice_bytes = 4 << 20}).slices, 4u);
  // No slice is without an element.
  EXPECT_LE(choose(kBroadcast, 1 << 20, 1 << 19, topology, {.slice_bytes = 1}).slices, 2u);
}

TEST(Choose, MakesSlicesLargerWhereLatencyWouldRule) {
  const Topology slow = Topology::one_rank_a_host(256);
  const Choice choice =
      choose(kAllReduce, 4 << 20, 4, slow, {.forced = "ring", .slice_bytes = 64 << 10});
  EXPECT_LT(choice.slices, 64u);
}

TEST(Choose, HasOneSliceWhereNotEveryRankKnowsTheSizes) {
  for (const Collective collective : {kGather, kScatter, kSend, kRecv}) {
    EXPECT_EQ(choose(collective, 1 << 30, 4, Topology::one_host(4)).slices, 1u);
  }
  const ChooseOptions uneven{.uneven = true};
  const Choice small = choose(kAllToAll, 0, 4, Topology::one_host(4), uneven);
  EXPECT_EQ(choose(kAllToAll, 1 << 30, 4, Topology::one_host(4), uneven), small);
  EXPECT_EQ(small.slices, 1u);
  EXPECT_FALSE(small.algorithm->equal_chunks);
}

TEST(Choose, ExplainsItself) {
  EXPECT_EQ(explain(choose(kAllReduce, 1 << 20, 4, Topology::one_host(4), {.forced = "ring"})),
            "all_reduce of 1048576 bytes on 4 ranks: ring in 1 slice, about 238.33 us");
  EXPECT_EQ(explain(choose(kBroadcast, 1, 1, Topology::one_host(1))),
            "broadcast of 1 byte on 1 rank: binomial in 1 slice, about 0.00 us");
  const auto all = candidates(kAllGather, 1000, 4, Topology::one_host(4));
  EXPECT_EQ(all.size(), 3u);
  EXPECT_EQ(explain(all), explain(all[0]) + '\n' + explain(all[1]) + '\n' + explain(all[2]) + '\n');
}

// The closed form against the clock, for every algorithm, within 35 per cent: near enough to choose
// by.
void expect_agreement(const Algorithm& algorithm, int size, const Topology& topology) {
  const Job job = make_job(algorithm, topology.hosts);
  for (const uint64_t bytes : {0, 8, 1 << 10, 64 << 10, 1 << 20, 16 << 20}) {
    if (algorithm.collective == kBarrier && bytes > 0) continue;
    for (const uint32_t slices : {1, 2, 8, 16}) {
      if (slices > 1 && bytes < 64 << 10) continue;
      const uint64_t run = simulate(job, topology, {.bytes = bytes, .slices = slices}).makespan_ps;
      const uint64_t computed = estimate_ps(
          cost_of(algorithm, topology.hosts.crossings(), (bytes + slices - 1) / slices), slices,
          /*window=*/4, topology.with_sharing());
      EXPECT_LE(computed, run + run * 35 / 100 + 1000)
          << name(algorithm.collective) << ':' << algorithm.name << ", " << size << ", " << bytes
          << ", " << slices;
      EXPECT_GE(computed + 1000, run - run * 35 / 100)
          << name(algorithm.collective) << ':' << algorithm.name << ", " << size << ", " << bytes
          << ", " << slices;
    }
  }
}

TEST(Cost, AgreesWithTheSimulation) {
  for (int i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (collective == kSend || collective == kRecv) continue;
    for (const Algorithm& algorithm : algorithms(collective)) {
      for (const int size : {1, 2, 3, 4, 5, 7, 8, 16, 33}) {
        if (!algorithm.fits(size)) continue;
        expect_agreement(algorithm, size, Topology::one_host(size));
        expect_agreement(algorithm, size, Topology::one_host(size, 2));
        expect_agreement(algorithm, size, Topology::one_rank_a_host(size));
      }
    }
  }
}

}  // namespace
}  // namespace hccl_like
