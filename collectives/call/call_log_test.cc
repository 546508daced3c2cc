#include "collectives/call/call_log.h"

#include <gtest/gtest.h>

namespace hccl_like {
namespace {

TEST(CallLog, KnowsTheLastCalls) {
  CallLog log;
  EXPECT_FALSE(log.find(0)) << "nothing was called";
  constexpr uint32_t kAll = 1000;
  for (uint32_t call = 0; call < kAll; ++call) {
    log.add(call, 7 * call, 3 * call, call + 1);
    EXPECT_FALSE(log.find(call + 1));
    for (uint32_t ago = 0; ago <= call; ++ago) {
      const auto found = log.find(call - ago);
      ASSERT_EQ(found.has_value(), ago < CallLog::kCalls) << call << " - " << ago;
      if (!found) break;
      ASSERT_EQ(found->fingerprint, 7 * uint64_t{call - ago});
      ASSERT_EQ(found->bytes, 3 * size_t{call - ago});
    }
  }
}

TEST(CallLog, LeavesOutWhatWasNotLogged) {
  CallLog log;
  log.add(3, 33, 1, 4);
  log.add(200, 44, 2, 201);  // far beyond its room
  EXPECT_FALSE(log.find(2));
  EXPECT_EQ(log.find(3)->fingerprint, 33u);
  EXPECT_EQ(log.find(200)->fingerprint, 44u);
  EXPECT_FALSE(log.find(200 - CallLog::kCalls));
  log.add(3 + CallLog::kCalls, 55, 3, 9);
  EXPECT_FALSE(log.find(3)) << "its place is another one's";
}

}  // namespace
}  // namespace hccl_like
