#pragma once
// Verdicts in tests.
#include <gtest/gtest.h>

#include <string_view>

#include "tests/model/explorer.h"

namespace hccl_like::model {

inline constexpr const char* kLost = "nobody can go on";
inline constexpr const char* kRace = "a data race";

inline testing::AssertionResult holds(const Verdict& verdict) {
  if (verdict.failure.empty())
    return testing::AssertionSuccess() << "in " << verdict.states << " states";
  return testing::AssertionFailure() << verdict.failure;
}

// That the explorer finds a flaw which was put in on purpose.
inline testing::AssertionResult fails_with(const Verdict& verdict, std::string_view why) {
  if (verdict.failure.starts_with(why)) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "explored " << verdict.states << " states and found "
         << (verdict.failure.empty() ? "nothing wrong" : verdict.failure);
}

}  // namespace hccl_like::model
