#include "collectives/call/disagreement.h"

#include <gtest/gtest.h>

#include "collectives/call/fingerprint.h"

namespace hccl_like {
namespace {

constexpr std::string_view kRule =
    ". Every rank must make the same calls in the same order, with the same sizes";

uint64_t sum(DataType type = DataType::kFloat32) {
  return Fingerprint{.collective = Collective::kAllReduce, .type = type, .reduces = true}.encode();
}

std::string both(Claim one, Claim other) {
  const std::string text = disagreement("0", 3, one, other, false, "they differ in secret");
  EXPECT_EQ(disagreement("0", 3, other, one, false, "they differ in secret"), text);
  EXPECT_EQ(text.substr(text.size() - kRule.size()), kRule);
  return text.substr(0, text.size() - kRule.size());
}

TEST(Disagreement, TellsSizesInElementsAlikeOnBothRanks) {
  EXPECT_EQ(both({.rank = 1, .fingerprint = sum(), .bytes = 20},
                 {.rank = 0, .fingerprint = sum(), .bytes = 16}),
            "ranks 0 and 1 of group 0 disagree about call #3, all_reduce of float32 (sum): rank 0 "
            "passed 4 elements, rank 1 passed 5 elements");
}

TEST(Disagreement, TellsTwoCalls) {
  const uint64_t barrier = Fingerprint{.collective = Collective::kBarrier}.encode();
  EXPECT_EQ(both({.rank = 4, .fingerprint = barrier},
                 {.rank = 2, .fingerprint = sum(DataType::kFloat64), .bytes = 8}),
            "ranks 2 and 4 of group 0 disagree about call #3: rank 2 passed 1 element to "
            "all_reduce of float64 (sum), rank 4 called barrier");
  EXPECT_EQ(both({.rank = 1, .fingerprint = sum(), .bytes = 4},
                 {.rank = 0, .fingerprint = sum(DataType::kInt64), .bytes = 8}),
            "ranks 0 and 1 of group 0 disagree about call #3: rank 0 passed 1 element to "
            "all_reduce of int64 (sum), rank 1 passed 1 element to all_reduce of float32 (sum)");
}

TEST(Disagreement, TellsOfMessages) {
  const uint64_t send =
      Fingerprint{.collective = Collective::kSend, .type = DataType::kInt16}.encode();
  EXPECT_EQ(both({.rank = 0, .verb = Claim::kExpects, .fingerprint = send, .bytes = 3},
                 {.rank = 1, .verb = Claim::kSent, .fingerprint = send, .bytes = 4}),
            "ranks 0 and 1 of group 0 disagree about call #3, send of int16: rank 0 expects a "
            "message of 3 bytes, rank 1 sent a message of 2 elements");
}

TEST(Disagreement, SaysWhatDoesNotShow) {
  EXPECT_EQ(both({.rank = 1, .fingerprint = sum(), .bytes = 20},
                 {.rank = 0, .fingerprint = sum(), .bytes = 20}),
            "ranks 0 and 1 of group 0 disagree about call #3, all_reduce of float32 (sum) (5 "
            "elements on both): they differ in secret");
}

TEST(Disagreement, TakesWhateverComesOverAWire) {
  EXPECT_EQ(both({.rank = 1, .fingerprint = ~uint64_t{0}, .bytes = 20},
                 {.rank = 0, .fingerprint = sum(), .bytes = 20}),
            "ranks 0 and 1 of group 0 disagree about call #3: rank 0 passed 5 elements to "
            "all_reduce of float32 (sum), rank 1 passed 20 bytes to an unknown call");
}

}  // namespace
}  // namespace hccl_like
