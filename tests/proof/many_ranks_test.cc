// Every algorithm proved for as many ranks as HCCL_LIKE_PROOF_RANKS says, on layouts of every kind.
#include <gtest/gtest.h>
#include <malloc.h>

#include <bit>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "collectives/testing/algorithm_name.h"
#include "collectives/verify/simulate.h"
#include "tests/number_setting.h"
#include "tests/proof/prove_large.h"

namespace hccl_like {
namespace {

constexpr uint64_t kRanks = 300;  // all algorithms take some seconds together

// Hosts of 1 to 15 ranks, which follow each other: a rank more on each host, up to the most.
Hosts uneven(int size) {
  std::vector<int> hosts;
  for (int host = 0; std::ssize(hosts) < size; ++host)
    for (int i = 0; i <= host * 7 % 15 && std::ssize(hosts) < size; ++i) hosts.push_back(host);
  return Hosts::of(hosts);
}

// Hosts of 5 to 11 ranks, dealt out in turn until a host has its ranks; the first has the rest.
Hosts dealt(int size) {
  std::vector<int> hosts;
  const int count = size / 8;
  for (int turn = 0; std::ssize(hosts) < size; ++turn)
    for (int host = 0; host < count && std::ssize(hosts) < size; ++host)
      if (host == 0 || turn < 5 + host % 7) hosts.push_back(host);
  return Hosts::of(hosts);
}

std::vector<const Algorithm*> all_algorithms() {
  std::vector<const Algorithm*> result;
  for (int i = 0; i < kCollectives; ++i)
    if (const auto collective = static_cast<Collective>(i); !is_point_to_point(collective))
      for (const Algorithm& algorithm : algorithms(collective)) result.push_back(&algorithm);
  return result;
}

// The simulator needs all schedules at once.
constexpr uint64_t kChunkBytes = 1024;
constexpr uint64_t kStepsInMemory = 10'000'000;

// RoundClock against simulate(), which takes each message in its time.
void compare_clocks(const Algorithm& algorithm, const Hosts& hosts, int root,
                    const LargeProof& proof) {
  const Job job = make_job(algorithm, hosts, root);
  const Simulation exact =
      simulate(job, {.hosts = hosts}, {.bytes = kChunkBytes * job.ranks[0].chunks()});
  EXPECT_EQ(exact.messages, proof.messages);
  for (const uint64_t finished : exact.finished_ps) EXPECT_GT(finished, 0u);
  const double ratio =
      static_cast<double>(proof.makespan_ps) / static_cast<double>(exact.makespan_ps);
  EXPECT_GT(ratio, 0.6);
  EXPECT_LT(ratio, 1.3);
}

class ManyRanks : public ::testing::TestWithParam<const Algorithm*> {};

TEST_P(ManyRanks, AreProved) {
  // Schedules come and go by the ten thousand: their memory stays with the process.
  mallopt(M_MMAP_THRESHOLD, 1 << 30), mallopt(M_TRIM_THRESHOLD, 1 << 30);
  const Algorithm& algorithm = *GetParam();
  const auto size = static_cast<int>(number_setting("HCCL_LIKE_PROOF_RANKS", kRanks));
  std::vector<Hosts> layouts;
  if (algorithm.fits(Hosts::even(2, 2)) && !algorithm.fits(4))
    layouts = {uneven(size), dealt(size)};
  else if (algorithm.fits(size))
    layouts = {size};
  else
    layouts = {static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))};
  for (const Hosts& hosts : layouts) {
    const int root = has_root(algorithm.collective) ? size / 3 : 0;
    const std::clock_t begin = std::clock();
    const LargeProof proof =
        prove_large(large_job(algorithm, hosts, root), {.memory = size_t{6} << 30,
                                                        .topology = Topology{.hosts = hosts},
                                                        .chunk_bytes = kChunkBytes});
    const double took = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    EXPECT_EQ(proof.fault, "") << hosts.to_string();
    EXPECT_GT(proof.makespan_ps, 0u) << "a round does not fit into memory";
    if (proof.steps <= kStepsInMemory) compare_clocks(algorithm, hosts, root, proof);
    std::printf(
        "%s:%s, %d ranks, %s: %.1f s of a core, %.1f million messages, %.1f million chunks, %d "
        "passes; %.3f ms on the clock\n",
        std::string(name(algorithm.collective)).c_str(), std::string(algorithm.name).c_str(),
        hosts.size(), hosts.to_string().c_str(), took, static_cast<double>(proof.messages) / 1e6,
        static_cast<double>(proof.chunks) / 1e6, static_cast<int>(proof.passes),
        static_cast<double>(proof.makespan_ps) / 1e9);
    std::fflush(stdout);
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, ManyRanks, ::testing::ValuesIn(all_algorithms()),
                         testing::algorithm_name);

}  // namespace
}  // namespace hccl_like
