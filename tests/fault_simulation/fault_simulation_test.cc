// Whole jobs in virtual time, one for each seed. HCCL_LIKE_FAULT_SEEDS=N runs so many;
// HCCL_LIKE_FAULT_FIRST=S begins there.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/fault_simulation/job.h"
#include "tests/number_setting.h"

namespace hccl_like::fault_simulation {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kSeeds = 10'000;
#else
constexpr uint64_t kSeeds = 80'000;
#endif
// Tests of their own, so that they run beside each other.
constexpr uint64_t kSlices = 8;

// Empty if the seed's job goes as it must.
std::string run(uint64_t seed) {
  Job job(seed);
  const std::string what = job.run();
  return what.empty() ? what : what + "\n" + job.describe();
}

class FaultSimulation : public ::testing::TestWithParam<uint64_t> {};

TEST_P(FaultSimulation, EveryRankEndsRightOrWithAnErrorThatNamesTheCause) {
  const uint64_t all = number_setting("HCCL_LIKE_FAULT_SEEDS", kSeeds);
  const uint64_t begins = all * GetParam() / kSlices, ends = all * (GetParam() + 1) / kSlices;
  const uint64_t first = number_setting("HCCL_LIKE_FAULT_FIRST", 0) + begins, seeds = ends - begins;
  const auto begin = std::chrono::steady_clock::now();
  int failures = 0;
  for (uint64_t seed = first; seed < first + seeds && failures < 5; ++seed)
    if (const std::string what = run(seed); !what.empty()) {
      ++failures;
      ADD_FAILURE() << what << "\nagain: HCCL_LIKE_FAULT_FIRST=" << seed
                    << " HCCL_LIKE_FAULT_SEEDS=1 fault_simulation_test";
    }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("%llu seeds in %.1f s: %llu turns, %llu calls, %llu errors in %llu jobs\n",
              static_cast<unsigned long long>(seeds), took.count(),
              static_cast<unsigned long long>(Job::tally.turns),
              static_cast<unsigned long long>(Job::tally.calls),
              static_cast<unsigned long long>(Job::tally.errors),
              static_cast<unsigned long long>(Job::tally.jobs_with_errors));
}

INSTANTIATE_TEST_SUITE_P(Slice, FaultSimulation, ::testing::Range(uint64_t{0}, kSlices));

}  // namespace
}  // namespace hccl_like::fault_simulation
