#include "device/reduce/parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <vector>

namespace hccl_like {
namespace {

using Bytes = std::vector<std::byte>;

// Small numbers in most types, repeated with a period that divides no part.
Bytes noise(size_t bytes, uint32_t seed) {
  std::array<std::byte, 4099> pattern;
  std::minstd_rand random(seed);
  for (std::byte& one : pattern) one = static_cast<std::byte>(random() % 60);
  Bytes made(bytes);
  for (size_t at = 0; at < bytes; at += pattern.size())
    std::memcpy(made.data() + at, pattern.data(), std::min(pattern.size(), bytes - at));
  return made;
}

// Around a part, and around several; unaligned.
const std::vector<size_t> kBytes{
    0, 1, 4096, (256 << 10) - 1, 256 << 10, (256 << 10) + 1, (1 << 20) + 12345};

class ParallelTest : public testing::TestWithParam<int> {
 protected:
  ThreadPool thread_pool;
  const DataType type = static_cast<DataType>(GetParam());
  const size_t element = size_of(type);
};

TEST_P(ParallelTest, GivesTheBitsOfTheKernelAlone) {
  for (int o = 0; o < kReduceOps; ++o) {
    const Reduction kernels = reduction(type, static_cast<ReduceOp>(o));
    if (!kernels.valid()) continue;
    for (const size_t bytes : kBytes) {
      const size_t count = bytes / element;
      const Bytes a = noise(bytes, 1), b = noise(bytes, 2), c = noise(bytes, 3);
      Bytes alone(bytes), together(bytes);
      kernels.combine(alone.data(), a.data(), b.data(), count);
      parallel_combine({thread_pool, 3}, kernels.combine, together.data(), a.data(), b.data(),
                       count, element);
      ASSERT_EQ(alone, together) << name(type) << " " << bytes;
      const std::vector<const std::byte*> sources{a.data(), b.data(), c.data()};
      kernels.combine_many(alone.data(), sources, count);
      parallel_combine_many({thread_pool, 3}, kernels.combine_many, together.data(), sources, count,
                            element);
      ASSERT_EQ(alone, together) << name(type) << " " << bytes;
    }
  }
}

TEST_P(ParallelTest, MayWriteOverASource) {
  const Reduction kernels = reduction(type, ReduceOp::kSum);
  const size_t bytes = (1 << 20) + 16 * 5;
  const Bytes a = noise(bytes, 1), b = noise(bytes, 2);
  Bytes alone = a, together = a;
  kernels.combine(alone.data(), alone.data(), b.data(), bytes / element);
  parallel_combine({thread_pool, 2}, kernels.combine, together.data(), together.data(), b.data(),
                   bytes / element, element);
  EXPECT_EQ(alone, together);
}

INSTANTIATE_TEST_SUITE_P(AllTypes, ParallelTest, testing::Range(0, kDataTypes),
                         [](const auto& one) {
                           return std::string(name(static_cast<DataType>(one.param)));
                         });

TEST(ParallelCopy, CopiesEveryByteAndNoneBeyond) {
  ThreadPool thread_pool;
  for (const size_t bytes : kBytes) {
    const Bytes from = noise(bytes + 1, 7);
    Bytes to(bytes + 1, std::byte{255});
    parallel_copy({thread_pool, 4}, to.data(), from.data(), bytes);
    EXPECT_EQ(std::memcmp(to.data(), from.data(), bytes), 0) << bytes;
    EXPECT_EQ(to.back(), std::byte{255}) << bytes;
  }
}

TEST(ParallelCombineMany, TakesAnyNumberOfSources) {
  ThreadPool thread_pool;
  const size_t count = 200'000;
  const std::vector<int32_t> one(count, 1);
  const std::vector<const std::byte*> sources(100, reinterpret_cast<const std::byte*>(one.data()));
  std::vector<int32_t> sum(count);
  parallel_combine_many({thread_pool, 2}, reduction(DataType::kInt32, ReduceOp::kSum).combine_many,
                        reinterpret_cast<std::byte*>(sum.data()), sources, count, 4);
  EXPECT_EQ(sum, std::vector<int32_t>(count, 100));
}

}  // namespace
}  // namespace hccl_like
