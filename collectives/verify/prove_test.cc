#include "collectives/verify/prove.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "collectives/testing/algorithm_name.h"
#include "collectives/verify/check.h"

namespace hccl_like {
namespace {

// Check and proof, with separate memory and in place.
std::string fault_of(const Job& job) {
  if (std::string fault = check(job); !fault.empty()) return fault;
  if (std::string fault = prove(job, Memory::kSeparate); !fault.empty()) return fault;
  return may_run_in_place(job.collective) ? prove(job, Memory::kInPlace) : "";
}

std::vector<const Algorithm*> all_algorithms() {
  std::vector<const Algorithm*> result;
  for (int i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (collective == Collective::kSend || collective == Collective::kRecv) continue;
    for (const Algorithm& algorithm : algorithms(collective)) result.push_back(&algorithm);
  }
  return result;
}

std::vector<const Algorithm*> algorithms_of_single_ranks() {
  std::vector<const Algorithm*> result;
  for (const Algorithm* algorithm : all_algorithms())
    if (algorithm->fits(4)) result.push_back(algorithm);
  return result;
}

std::string title(const Algorithm& algorithm, int size, int root) {
  return std::string(name(algorithm.collective)) + ':' + std::string(algorithm.name) + ", " +
         std::to_string(size) + " ranks, root " + std::to_string(root);
}

TEST(Prove, EveryAlgorithmForOneToSixtyFourRanks) {
  for (const Algorithm* algorithm : all_algorithms()) {
    for (int size = 1; size <= 64; ++size) {
      if (!algorithm->fits(size)) continue;
      std::vector<int> roots{0};
      if (has_root(algorithm->collective)) roots = {0, size / 2, size - 1};
      for (const int root : roots) {
        EXPECT_EQ(fault_of(make_job(*algorithm, size, root)), "") << title(*algorithm, size, root);
      }
    }
  }
}

TEST(Prove, TwoRanksThatSumAtOnce) {
  for (const Algorithm* algorithm : all_algorithms()) {
    if (!algorithm->sums_at_once) continue;
    for (int root = 0; root < (has_root(algorithm->collective) ? 2 : 1); ++root) {
      Job job = make_job(*algorithm, 2, root);
      for (int rank = 0; rank < 2; ++rank) {
        Schedule& schedule = job.ranks[static_cast<size_t>(rank)];
        schedule = sums_at_once(schedule, rank);
        for (const Step& step : schedule.steps()) {
          EXPECT_NE(step.kind, Step::Kind::kRecvReduce) << title(*algorithm, 2, root);
          EXPECT_EQ(step.sources, step.kind == Step::Kind::kReduce ? 2u : 0u);
        }
      }
      EXPECT_EQ(fault_of(job), "") << title(*algorithm, 2, root);
    }
  }
}

TEST(Prove, EveryRootOfSevenRanks) {
  for (const Algorithm* algorithm : all_algorithms()) {
    if (!has_root(algorithm->collective) || !algorithm->fits(7)) continue;
    for (int root = 0; root < 7; ++root) {
      EXPECT_EQ(fault_of(make_job(*algorithm, 7, root)), "") << title(*algorithm, 7, root);
    }
  }
}

// One test an algorithm, so that sanitizers have time for each.
class ThousandRanks : public ::testing::TestWithParam<const Algorithm*> {};

TEST_P(ThousandRanks, Prove) {
  const Algorithm& algorithm = *GetParam();
  for (const int size : {1021, 1024}) {
    if (!algorithm.fits(size)) continue;
    const Job job = make_job(algorithm, size, 3);
    // A million messages take a second: algorithms that treat all sizes alike are proved for the
    // prime.
    if (size == 1024 && algorithm.fits(1021) && job.ranks[0].steps().size() > 1000) continue;
    EXPECT_EQ(check(job), "") << title(algorithm, size, 3);
    const bool in_place = may_run_in_place(job.collective);
    EXPECT_EQ(prove(job, in_place ? Memory::kInPlace : Memory::kSeparate), "")
        << title(algorithm, size, 3);
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, ThousandRanks,
                         ::testing::ValuesIn(algorithms_of_single_ranks()),
                         testing::algorithm_name);

// Layouts of `size` ranks on several hosts, some with several ranks: even, uneven, ranks dealt out
// in turn, and any.
std::vector<Hosts> layouts(int size) {
  std::vector<std::vector<int>> by_rank;
  const auto add = [&](auto host) {
    std::vector<int> hosts;
    for (int rank = 0; rank < size; ++rank) hosts.push_back(host(rank));
    by_rank.push_back(std::move(hosts));
  };
  for (const int each : {2, 3, 4, 8, 16}) add([&](int rank) { return rank / each; });
  for (const int hosts : {2, 3, 5}) add([&](int rank) { return rank % hosts; });
  add([&](int rank) { return rank == size / 2; });                        // one stands alone
  add([&](int rank) { return rank < 2 ? -1 : rank; });                    // one pair
  add([](int rank) { return static_cast<int>(std::sqrt(2.0 * rank)); });  // 1, 1, 2, 2, 3, ...
  add([](int rank) { return static_cast<int>(uint32_t(rank) * 2654435761u >> 30); });  // any
  std::vector<Hosts> result;
  for (const auto& hosts : by_rank)
    if (const Hosts layout = Hosts::of(hosts); layout.nested()) result.push_back(layout);
  return result;
}

TEST(Prove, EveryAlgorithmForSeveralHostsOnManyLayouts) {
  int proved = 0;
  for (const Algorithm* algorithm : all_algorithms()) {
    if (algorithm->fits(4) || !algorithm->fits(Hosts::even(2, 2))) continue;
    for (int size = 3; size <= 64; size += size < 20 ? 1 : 11) {
      for (const Hosts& hosts : layouts(size)) {
        std::vector<int> roots{0};
        if (has_root(algorithm->collective)) roots = {0, size / 2, size - 1};
        for (const int root : roots) {
          EXPECT_EQ(fault_of(make_job(*algorithm, hosts, root)), "")
              << title(*algorithm, size, root) << ", " << hosts.to_string();
          ++proved;
        }
      }
    }
  }
  EXPECT_GT(proved, 3000);
}

TEST(Prove, AThousandRanksOnHundredTwentyEightHosts) {
  const Hosts hosts = Hosts::even(128, 8);
  for (const char* one : {"leaders_doubling", "rails_rabenseifner", "rails_ring"}) {
    const Job job = make_job(*find_algorithm(Collective::kAllReduce, one), hosts);
    EXPECT_EQ(check(job), "") << one;
    EXPECT_EQ(prove(job, Memory::kInPlace), "") << one;
  }
  for (const auto& [collective, one] : {std::pair(Collective::kBroadcast, "rails_chain"),
                                        std::pair(Collective::kReduce, "rails_chain"),
                                        std::pair(Collective::kAllGather, "leaders_bruck"),
                                        std::pair(Collective::kBarrier, "leaders")}) {
    EXPECT_EQ(fault_of(make_job(*find_algorithm(collective, one), hosts, 3)), "") << one;
  }
}

TEST(Prove, AMessage) {
  for (const int size : {2, 3, 5}) {
    EXPECT_EQ(fault_of(make_message(size, 1, 0)), "");
    EXPECT_EQ(fault_of(make_message(size, 0, size - 1)), "");
  }
}

// Numbers whose float32 sum depends on the order: of all magnitudes and both signs.
float awkward(int rank, int chunk) {
  const uint32_t mix = static_cast<uint32_t>(rank * 7919 + chunk * 104729) * 2654435761u;
  const float mantissa = 1.0f + static_cast<float>(mix >> 9) / 8388608.0f;
  return std::ldexp(mix & 1 ? -mantissa : mantissa, static_cast<int>(mix >> 3 & 15));
}

TEST(Floats, AllRanksOfAnAllReduceAreBitwiseEqual) {
  for (const Algorithm& algorithm : algorithms(Collective::kAllReduce)) {
    for (int size = 1; size <= 64; ++size) {
      const auto outputs = run_on_floats(make_job(algorithm, size), awkward);
      for (int rank = 1; rank < size; ++rank) {
        for (size_t c = 0; c < outputs[0].size(); ++c) {
          EXPECT_EQ(std::bit_cast<uint32_t>(outputs[static_cast<size_t>(rank)][c]),
                    std::bit_cast<uint32_t>(outputs[0][c]))
              << title(algorithm, size, 0) << ", rank " << rank << ", chunk " << c;
        }
      }
    }
  }
}

TEST(Floats, AllRanksOnSeveralHostsAreBitwiseEqual) {
  for (const Algorithm& algorithm : algorithms(Collective::kAllReduce)) {
    for (const int size : {4, 7, 12, 33}) {
      for (const Hosts& hosts : layouts(size)) {
        if (!algorithm.fits(hosts)) continue;
        const auto outputs = run_on_floats(make_job(algorithm, hosts), awkward);
        for (const auto& output : outputs)
          EXPECT_EQ(output, outputs[0]) << title(algorithm, size, 0) << ", " << hosts.to_string();
      }
    }
  }
}

float in_rank_order(int size, int chunk) {
  float sum = awkward(0, chunk);
  for (int rank = 1; rank < size; ++rank) sum += awkward(rank, chunk);
  return sum;
}

TEST(Floats, DirectAlgorithmsAddInRankOrder) {
  for (const int size : {2, 3, 8, 17}) {
    for (const char* name : {"one_shot", "direct"}) {
      const auto outputs =
          run_on_floats(make_job(*find_algorithm(Collective::kAllReduce, name), size), awkward);
      for (int c = 0; c < static_cast<int>(outputs[0].size()); ++c) {
        EXPECT_EQ(outputs[0][static_cast<size_t>(c)], in_rank_order(size, c)) << name;
      }
    }
    const auto scattered = run_on_floats(
        make_job(*find_algorithm(Collective::kReduceScatter, "direct"), size), awkward);
    for (int rank = 0; rank < size; ++rank) {
      const auto r = static_cast<size_t>(rank);
      EXPECT_EQ(scattered[r][r], in_rank_order(size, rank));
    }
    const auto reduced =
        run_on_floats(make_job(*find_algorithm(Collective::kReduce, "direct"), size, 1), awkward);
    for (int c = 0; c < size; ++c)
      EXPECT_EQ(reduced[1][static_cast<size_t>(c)], in_rank_order(size, c));
  }
}

TEST(Floats, TheOrderMattersForTheseNumbers) {
  float backwards = awkward(16, 0);
  for (int rank = 15; rank >= 0; --rank) backwards += awkward(rank, 0);
  EXPECT_NE(backwards, in_rank_order(17, 0));
}

TEST(Prove, FindsAContributionThatIsCountedTwice) {
  Job job{.collective = Collective::kAllReduce, .ranks = {Schedule(1), Schedule(1)}};
  for (int rank = 0; rank < 2; ++rank) {
    Schedule& s = job.ranks[static_cast<size_t>(rank)];
    const Slot got = s.add_scratch(in(0));
    s.round(send(1 - rank, in(0)), recv(1 - rank, got));
    s.begin_round();
    s.add_reduce(out(0), std::vector{in(0), got, got});
  }
  EXPECT_EQ(check(job), "");
  EXPECT_EQ(prove(job, Memory::kSeparate),
            "rank 0 of 2: out[0] does not hold what it should: in[0] of rank 1 counts 2 times; "
            "round 1 wrote it last: reduce in[0]+scratch[0]+scratch[0] to out[0]");
}

TEST(Prove, FindsMemoryThatNobodyWrote) {
  Job job{.collective = Collective::kAllReduce, .ranks = {Schedule(1)}};
  const Slot nothing = job.ranks[0].add_scratch(in(0));
  job.ranks[0].round(copy(nothing, out(0)));
  EXPECT_EQ(check(job), "");
  EXPECT_EQ(prove(job, Memory::kSeparate),
            "rank 0 of 1: out[0] does not hold what it should: in[0] of rank 0 is missing, "
            "scratch[0] of rank 0 was read before it was written; round 0 wrote it last: copy "
            "scratch[0] to out[0]");
}

TEST(Prove, FindsABarrierThatLetsSomebodyThrough) {
  Job job = make_job(*find_algorithm(Collective::kBarrier, "dissemination"), 4);
  for (int rank = 0; rank < 4; ++rank) {
    Schedule s(1);
    s.round(send((rank + 1) % 4, in(0)), recv((rank + 3) % 4, out(0)));
    job.ranks[static_cast<size_t>(rank)] = s;
  }
  EXPECT_EQ(check(job), "");
  EXPECT_EQ(prove(job, Memory::kSeparate), "rank 0 leaves without having heard of rank 1");
}

}  // namespace
}  // namespace hccl_like
