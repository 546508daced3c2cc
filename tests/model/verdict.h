#pragma once
// Verdicts in tests.
#include <gtest/gtest.h>

#include <cstdio>
#include <string_view>

#include "tests/model/explorer.h"

namespace hccl_like::model {

inline constexpr const char* kLost = "nobody can go on";
inline constexpr const char* kRace = "a data race";

// Schedules that each protocol has at least.
inline constexpr double kMany = 1e6;

// Checks that the protocol holds and prints the numbers of executions, states and schedules.
// Requires at least `states` and `schedules`: a scenario without any events would hold, too.
inline testing::AssertionResult holds(const Verdict& verdict, size_t states, double schedules = 1) {
  if (!verdict.failure.empty()) return testing::AssertionFailure() << verdict.failure;
  std::printf("  holds in all of %zu executions through %zu states, which are %.3g schedules\n",
              verdict.executions, verdict.states, verdict.schedules);
  if (verdict.states < states)
    return testing::AssertionFailure()
           << "only " << verdict.states << " states, which is less than this had";
  if (verdict.schedules < schedules)
    return testing::AssertionFailure()
           << "only " << verdict.schedules << " schedules, which is less than this had";
  return testing::AssertionSuccess();
}

// That the explorer finds a flaw which was put in on purpose.
inline testing::AssertionResult fails_with(const Verdict& verdict, std::string_view why) {
  if (verdict.failure.starts_with(why)) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "explored " << verdict.states << " states and found "
         << (verdict.failure.empty() ? "nothing wrong" : verdict.failure);
}

}  // namespace hccl_like::model
