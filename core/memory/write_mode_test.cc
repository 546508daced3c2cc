#include "core/memory/write_mode.h"

#include <gtest/gtest.h>

#include <vector>

namespace hccl_like {
namespace {

using std::chrono::nanoseconds;
constexpr size_t kBytes = 64 << 10;

void judge(WriteMode& mode, std::initializer_list<bool> slow) {
  for (const bool one : slow)
    mode.judge(kBytes, WriteMode::slow(kBytes) - nanoseconds(one ? 0 : 1));
}

TEST(WriteMode, ChangesAfterThreeSamplesInARow) {
  WriteMode mode;
  judge(mode, {true, true, false, true, true});
  EXPECT_FALSE(mode.goes_past_caches()) << "a fast sample starts the count again";
  judge(mode, {true});
  EXPECT_TRUE(mode.goes_past_caches());
  judge(mode, {true, false, false, true, false, false});
  EXPECT_TRUE(mode.goes_past_caches());
  judge(mode, {false});
  EXPECT_FALSE(mode.goes_past_caches());
}

TEST(WriteMode, MeasuresInProportionToTheBytes) {
  EXPECT_GT(WriteMode::slow(kBytes), nanoseconds(0));
  EXPECT_EQ(WriteMode::slow(4 * kBytes), 4 * WriteMode::slow(kBytes));
}

TEST(WriteMode, CopiesInBothModes) {
  std::vector<std::byte> from(kBytes + 1), to(kBytes + 1);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 251);
  WriteMode mode;
  for (const bool past : {false, true}) {
    for (uint32_t i = 0; past && i < WriteMode::kVotes; ++i)
      mode.judge(kBytes, WriteMode::slow(kBytes));
    for (uint32_t write = 0; write < 2 * WriteMode::kSampleEvery; ++write)
      for (const size_t bytes :
           {size_t{0}, size_t{1}, WriteMode::kLeast - 1, WriteMode::kLeast, kBytes + 1}) {
        std::fill(to.begin(), to.end(), std::byte{0xee});
        mode.copy(to.data(), from.data(), bytes);
        ASSERT_TRUE(
            std::equal(from.begin(), from.begin() + static_cast<ptrdiff_t>(bytes), to.begin()));
        if (bytes < to.size()) {
          ASSERT_EQ(to[bytes], std::byte{0xee});
        }
      }
  }
}

}  // namespace
}  // namespace hccl_like
