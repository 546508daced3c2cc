// Whole jobs in virtual time, one for each seed. HCCL_LIKE_STORM_SEEDS=N runs so many; HCCL_LIKE_STORM_FIRST=S begins there.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "tests/storm/job.h"

namespace hccl_like::storm {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kSeeds = 10'000;
#else
constexpr uint64_t kSeeds = 150'000;
#endif

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Empty if the seed's job goes as it must.
std::string run(uint64_t seed) {
  Job job(seed);
  const std::string what = job.run();
  return what.empty() ? what : what + "\n" + job.describe();
}

TEST(Storm, EveryRankEndsRightOrWithAnErrorThatNamesTheCause) {
  const uint64_t seeds = setting("HCCL_LIKE_STORM_SEEDS", kSeeds);
  const uint64_t first = setting("HCCL_LIKE_STORM_FIRST", 0);
  const auto begin = std::chrono::steady_clock::now();
  int failures = 0;
  for (uint64_t seed = first; seed < first + seeds && failures < 5; ++seed)
    if (const std::string what = run(seed); !what.empty()) {
      ++failures;
      ADD_FAILURE() << what << "\nagain: HCCL_LIKE_STORM_FIRST=" << seed
                    << " HCCL_LIKE_STORM_SEEDS=1 storm_test";
    }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("%llu seeds in %.1f s: %llu turns, %llu calls, %llu errors in %llu jobs\n",
              static_cast<unsigned long long>(seeds), took.count(),
              static_cast<unsigned long long>(Job::tally.turns),
              static_cast<unsigned long long>(Job::tally.calls),
              static_cast<unsigned long long>(Job::tally.errors),
              static_cast<unsigned long long>(Job::tally.jobs_with_errors));
}

}  // namespace
}  // namespace hccl_like::storm
