#include "bench/cpp/inputs.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "bench/cpp/options.h"
#include "device/reduce/reduce.h"

namespace hccl_like::bench {
namespace {

constexpr size_t kElements = 3000;  // nearly three periods

using Bytes = std::vector<std::byte>;

Bytes input(DataType type, ReduceOp op, int rank, int ranks, int salt = 0) {
  Bytes bytes(kElements * size_of(type));
  fill(bytes, type, op, rank, ranks, salt);
  return bytes;
}

Bytes expected(DataType type, ReduceOp op, int ranks) {
  Bytes bytes(kElements * size_of(type));
  fill_reduced(bytes, type, op, ranks, 0);
  return bytes;
}

// All ranks' inputs, one after the other, by the kernels that the collectives use.
Bytes reduce(DataType type, ReduceOp op, int ranks, bool backwards) {
  const Reduction kernels = reduction(type, op);
  const Scaling scales = scaling(type, op, ranks, kFactor);
  const auto of = [&](int position) {
    Bytes bytes = input(type, op, backwards ? ranks - 1 - position : position, ranks);
    if (scales.input != 1)
      kernels.scale(bytes.data(), bytes.data(), kElements, {.input = scales.input});
    return bytes;
  };
  Bytes total = of(0);
  for (int position = 1; position < ranks; ++position)
    kernels.combine(total.data(), total.data(), of(position).data(), kElements);
  if (scales.result != 1)
    kernels.scale(total.data(), total.data(), kElements, {.result = scales.result});
  return total;
}

TEST(Inputs, AreReducedExactlyInEitherOrderForEveryTypeAndOperation) {
  for (const NamedType& type : kTypes)
    for (const NamedOp& op : kOps)
      for (const int ranks : {1, 2, 3, 8, 40}) {
        if (!reduction(type.type, op.op).valid()) continue;
        const bool averaged = op.op == ReduceOp::kAvg && (ranks & (ranks - 1)) != 0;
        for (const bool backwards : {false, true})
          EXPECT_EQ(count_wrong(reduce(type.type, op.op, ranks, backwards),
                                expected(type.type, op.op, ranks), type.type, averaged),
                    0u)
              << type.name << " " << op.name << " on " << ranks << (backwards ? " backwards" : "");
      }
}

TEST(Inputs, DifferBetweenRanksAndBetweenSalts) {
  EXPECT_NE(input(DataType::kFloat32, ReduceOp::kSum, 0, 2),
            input(DataType::kFloat32, ReduceOp::kSum, 1, 2));
  EXPECT_NE(input(DataType::kFloat32, ReduceOp::kSum, 0, 2, 0),
            input(DataType::kFloat32, ReduceOp::kSum, 0, 2, 1));
}

TEST(Inputs, AreSmallWholeNumbers) {
  const Bytes bytes = input(DataType::kFloat32, ReduceOp::kSum, 1, 2);
  std::vector<float> values(kElements);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  EXPECT_EQ(values[0], 11.0f);
  EXPECT_EQ(values[1], 18.0f);
  EXPECT_EQ(values[1021], 11.0f);
}

TEST(Inputs, FromAPositionOnAreThePartOfTheWhole) {
  const Bytes whole = input(DataType::kBFloat16, ReduceOp::kSum, 2, 3);
  Bytes part(500 * 2);
  fill_from(part, DataType::kBFloat16, ReduceOp::kSum, 2, 3, 0, 1777);
  EXPECT_EQ(std::memcmp(part.data(), whole.data() + 1777 * 2, part.size()), 0);
}

TEST(CountWrong, CountsElementsAndNotBytes) {
  Bytes a(8 * 16), b(8 * 16);
  a[0] = a[1] = a[15] = std::byte{1};
  a[40] = std::byte{1};
  EXPECT_EQ(count_wrong(a, b, DataType::kComplex128, false), 2u);
  EXPECT_EQ(count_wrong(a, b, DataType::kFloat32, false), 3u);
}

TEST(CountWrong, ForgivesOneRoundingOnlyInAveragesOfFloats) {
  const Bytes a{std::byte{0x40}, std::byte{0x3f}}, b{std::byte{0x41}, std::byte{0x3f}};
  EXPECT_EQ(count_wrong(a, b, DataType::kBFloat16, false), 1u);
  EXPECT_EQ(count_wrong(a, b, DataType::kBFloat16, true), 0u);
  EXPECT_EQ(count_wrong(a, b, DataType::kInt16, true), 1u);
}

}  // namespace
}  // namespace hccl_like::bench
