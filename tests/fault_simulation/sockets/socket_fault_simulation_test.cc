// Jobs over simulated sockets in virtual time, one for each seed. HCCL_LIKE_SOCKET_FAULT_SEEDS=N
// runs so many; HCCL_LIKE_SOCKET_FAULT_FIRST=S begins there.
#include <gtest/gtest.h>

#include <chrono>
#include <utility>

#include "core/base/log.h"
#include "tests/fault_simulation/sockets/job.h"
#include "tests/number_setting.h"

namespace hccl_like::fault_simulation::sockets {
namespace {

constexpr uint64_t kSeeds = 8'000;
// Tests of their own, so that they run beside each other.
constexpr uint64_t kSlices = 4;

class SocketFaultSimulation : public ::testing::TestWithParam<uint64_t> {};

TEST_P(SocketFaultSimulation, EveryRankMeetsTheOthersOrEndsWithAnErrorThatNamesTheCause) {
  configure_log(LogLevel::kWarn, "/dev/null");
  const uint64_t all = number_setting("HCCL_LIKE_SOCKET_FAULT_SEEDS", kSeeds);
  const uint64_t begins = all * GetParam() / kSlices, ends = all * (GetParam() + 1) / kSlices;
  const uint64_t first = number_setting("HCCL_LIKE_SOCKET_FAULT_FIRST", 0) + begins,
                 seeds = ends - begins;
  const auto begin = std::chrono::steady_clock::now();
  int failures = 0;
  for (uint64_t seed = first; seed < first + seeds && failures < 5; ++seed) {
    Job job(seed);
    if (const std::string what = job.run(); !what.empty()) {
      ++failures;
      ADD_FAILURE() << what << "\n"
                    << job.describe() << "\nagain: HCCL_LIKE_SOCKET_FAULT_FIRST=" << seed
                    << " HCCL_LIKE_SOCKET_FAULT_SEEDS=1 socket_fault_simulation_test";
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const Job::Tally& tally = Job::tally;
  std::printf("%llu seeds in %.1f s: %llu system calls, %llu strangers, %llu errors in %llu jobs\n",
              static_cast<unsigned long long>(seeds), took.count(),
              static_cast<unsigned long long>(tally.steps),
              static_cast<unsigned long long>(tally.strangers),
              static_cast<unsigned long long>(tally.errors),
              static_cast<unsigned long long>(tally.jobs_with_errors));
}

TEST(SocketFaultSimulations, OfOneSeedGoTheSameWayEachTime) {
  configure_log(LogLevel::kWarn, "/dev/null");
  const auto end = [](uint64_t seed) {
    Job job(seed);
    job.run();
    return std::pair(job.steps(), now);
  };
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const auto once = end(seed);
    end(1000 + seed);
    EXPECT_EQ(end(seed), once) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Slice, SocketFaultSimulation, ::testing::Range(uint64_t{0}, kSlices));

}  // namespace
}  // namespace hccl_like::fault_simulation::sockets
