#include "transport/security/random.h"

#include <gtest/gtest.h>

#include <set>

namespace hccl_like {
namespace {

TEST(Random, NeverRepeatsAndComparesWhole) {
  std::set<std::string> texts;
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(texts.insert(random_hex(16)).second);
  EXPECT_EQ(texts.begin()->size(), 32u);
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abcd"));
  EXPECT_TRUE(equal_in_constant_time("", ""));
}

}  // namespace
}  // namespace hccl_like
