#include "transport/same_host/guarded_text.h"

#include <gtest/gtest.h>

namespace hccl_like {
namespace {

TEST(GuardedText, IsReadWithTheKeyOfTheLastText) {
  GuardedText text;
  EXPECT_EQ(text.read(1), std::nullopt);
  for (const size_t length :
       {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{9}, size_t{1008}}) {
    const std::string written(length, static_cast<char>('a' + length % 26));
    text.write(length + 1, written);
    EXPECT_EQ(text.read(length + 1), written);
    EXPECT_EQ(text.read(length + 2), std::nullopt);
  }
}

TEST(GuardedText, CutsWhatIsTooLong) {
  GuardedText text;
  text.write(1, std::string(2000, 'x'));
  EXPECT_EQ(text.read(1), std::string(GuardedText::kBytes, 'x'));
}

}  // namespace
}  // namespace hccl_like
