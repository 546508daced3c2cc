// Every type and operation in calls made by streams.
#include <random>

#include "collectives/stream/testing/executors.h"

namespace hccl_like {
namespace {

using on_streams::Executor;
using on_streams::Executors;
using on_streams::Numbers;
using testing::Rank;

class StreamTypes : public Executors {};

// Bytes of one component of a float or complex type; 0 for other types.
size_t component(DataType type) {
  if (is_integer(type) || type == DataType::kBool) return 0;
  const bool is_complex = type == DataType::kComplex64 || type == DataType::kComplex128;
  return size_of(type) / (is_complex ? 2 : 1);
}

// Random elements; floats below 2 in magnitude, so that no sum or product has a NaN.
std::vector<std::byte> random_elements(DataType type, size_t count, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<std::byte> bytes(count * size_of(type));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  if (type == DataType::kBool)
    for (std::byte& byte : bytes) byte &= std::byte{1};
  if (const size_t size = component(type))
    for (size_t last = size - 1; last < bytes.size(); last += size) bytes[last] &= std::byte{0xbf};
  return bytes;
}

// With more than two ranks sums are in the order of the ranks; with two, both orders are the same.
TEST_P(StreamTypes, EveryTypeAndOperationHasTheBitsOfTheHost) {
  run([](Rank me, Executor& executor) {
    constexpr size_t kCount = 37;
    Numbers& memory = executor.make(2 * kCount);  // as large as any type needs
    for (int t = 0; t < kDataTypes; ++t)
      for (int o = 0; o < kReduceOps; ++o) {
        const auto type = static_cast<DataType>(t);
        const auto op = static_cast<ReduceOp>(o);
        const Reduction& host = reduction(type, op);
        if (!host.valid()) continue;
        std::vector<std::vector<std::byte>> inputs;
        std::vector<const std::byte*> sources;
        for (int rank = 0; rank < me.size; ++rank) {
          inputs.push_back(random_elements(type, kCount, 100 * rank + t));
          sources.push_back(inputs.back().data());
        }
        std::vector<std::byte> expected(inputs.front().size());
        const Scaling scales = scaling(type, op, me.size, 1.5);
        host.combine_all(expected.data(), nullptr, sources, kCount, scales);
        const std::vector<std::byte>& mine = inputs[static_cast<size_t>(me.rank)];
        std::memcpy(memory.begin(), mine.data(), mine.size());
        const Layout layout =
            Layout::even(Region{reinterpret_cast<std::byte*>(64), mine.size()}, 1, size_of(type));
        const DeviceRange side{memory.side().begin, mine.size()};
        const bool made = executor.run({.collective = Collective::kAllReduce,
                                        .type = type,
                                        .op = op,
                                        .factor = op == ReduceOp::kPreMulSum ? 1.5 : 1.0,
                                        .input = layout,
                                        .output = layout},
                                       side, side);
        // Averages of integers are not among a plugin's operations.
        EXPECT_EQ(made, !scales.any() || component(type) > 0) << name(type) << ' ' << name(op);
        if (made) {
          EXPECT_EQ(std::memcmp(memory.begin(), expected.data(), expected.size()), 0)
              << name(type) << ' ' << name(op);
        }
      }
  });
}

INSTANTIATE_TEST_SUITE_P(Streams, StreamTypes, ::testing::Values(2, 3, 4, 8),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace hccl_like
