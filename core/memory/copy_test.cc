#include "core/memory/copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace hccl_like {
namespace {

TEST(CopyPastCaches, CopiesWhatItIsToldAtEveryAlignment) {
  constexpr size_t kRoom = 70;
  for (const size_t bytes : {0, 1, 63, 64, 65, 127, 128, 1000, 4097})
    for (size_t to = 0; to < 65; to += 13)
      for (size_t from = 0; from < 65; from += 16) {
        std::vector<std::byte> source(bytes + kRoom), target(bytes + 2 * kRoom, std::byte{0xee});
        for (size_t i = 0; i < source.size(); ++i)
          source[i] = static_cast<std::byte>(i * 7 + i / 251);
        std::vector<std::byte> expected = target;
        std::copy_n(source.begin() + static_cast<ptrdiff_t>(from), bytes,
                    expected.begin() + static_cast<ptrdiff_t>(to));
        copy_past_caches(target.data() + to, source.data() + from, bytes);
        ASSERT_EQ(target, expected) << bytes << " bytes from " << from << " to " << to;
      }
}

TEST(CopyBetweenCores, CopiesWhatItIsToldAtEveryAlignment) {
  constexpr size_t kLong = 128 << 10;
  for (const size_t bytes : {size_t{0}, size_t{777}, size_t{8192}, size_t{16'383}, size_t{16'384},
                             size_t{30'001}, kLong - 1, kLong, kLong + 16'383, 2 * kLong + 70})
    for (const size_t shift : {0, 1, 64, 4095}) {
      std::vector<std::byte> source(bytes + 70), target(bytes + shift + 70, std::byte{0xee});
      for (size_t i = 0; i < source.size(); ++i)
        source[i] = static_cast<std::byte>(i * 7 + i / 251);
      std::vector<std::byte> expected = target;
      std::copy_n(source.begin() + 3, bytes, expected.begin() + static_cast<ptrdiff_t>(shift));
      copy_between_cores(target.data() + shift, source.data() + 3, bytes, bytes);
      ASSERT_EQ(target, expected) << bytes << " bytes to " << shift;
      std::fill(target.begin(), target.end(), std::byte{0xee});
      copy_in_pairs(target.data() + shift, source.data() + 3, bytes, bytes);
      ASSERT_EQ(target, expected) << bytes << " bytes to " << shift;
    }
}

TEST(LastCache, HasASize) { EXPECT_GE(last_cache_bytes(), size_t{64} << 10); }

}  // namespace
}  // namespace hccl_like
