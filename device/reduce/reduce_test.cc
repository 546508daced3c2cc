// Every type x operation on every instruction set of this processor against a scalar reference, bit
// by bit.
#include "device/reduce/reduce.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "device/testing/reduce_inputs.h"
#include "device/testing/reduce_reference.h"

namespace hccl_like {
namespace {

using reduce_reference::Bytes;
using reduce_reference::expect_same;
using reduce_reference::kReferences;
using reduce_reference::random_bytes;
using reduce_reference::Reference;

std::vector<int64_t> targets() {
  std::vector<int64_t> result;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) result.push_back(target);
  return result;
}

void use_target(int64_t target) {
  hwy::GetChosenTarget().Update(target == 0 ? hwy::SupportedTargets() : target);
}

DataType type_at(int i) { return static_cast<DataType>(i); }
ReduceOp op_at(int i) { return static_cast<ReduceOp>(i); }

class Reduce : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { use_target(GetParam()); }
  void TearDown() override { use_target(0); }
};

constexpr size_t kSizes[] = {0,  1,  2,  3,  7,   8,   15,  16,   17,  31,
                             33, 63, 64, 65, 129, 255, 257, 1000, 4099};

template <class Body>
void for_each_reduction(const Body& body) {
  for (int t = 0; t < kDataTypes; ++t) {
    for (int o = 0; o < kReduceOps; ++o) {
      if (const Reduction r = reduction(type_at(t), op_at(o)); r.valid())
        body(type_at(t), op_at(o), r);
    }
  }
}

TEST_P(Reduce, CombinesTwoLikeTheReference) {
  std::mt19937 random(1);
  for_each_reduction([&](DataType type, ReduceOp op, const Reduction& r) {
    const Reference& ref = kReferences[static_cast<size_t>(type)];
    const size_t size = size_of(type);
    for (const size_t n : kSizes) {
      const Bytes a = random_bytes(type, n, 1, random), b = random_bytes(type, n, 3, random);
      Bytes expected(n * size), dst(n * size + 6, std::byte{0x5a});
      ref.many(op, expected.data(), {a.data() + 1, b.data() + 3}, n, size);
      r.combine(dst.data() + 5, a.data() + 1, b.data() + 3, n);
      expect_same(type, op, dst.data() + 5, expected.data(), n, "unaligned");
      ASSERT_EQ(dst[4], std::byte{0x5a});
      ASSERT_EQ(dst[n * size + 5], std::byte{0x5a});
      Bytes in_a = a, in_b = b;
      r.combine(in_a.data() + 1, in_a.data() + 1, b.data() + 3, n);
      expect_same(type, op, in_a.data() + 1, expected.data(), n, "dst is a");
      r.combine(in_b.data() + 3, a.data() + 1, in_b.data() + 3, n);
      expect_same(type, op, in_b.data() + 3, expected.data(), n, "dst is b");
    }
  });
}

TEST_P(Reduce, CombinesIntoTwoPlaces) {
  std::mt19937 random(5);
  for_each_reduction([&](DataType type, ReduceOp op, const Reduction& r) {
    const size_t size = size_of(type);
    for (const size_t n : kSizes) {
      Bytes a = random_bytes(type, n, 1, random), b = random_bytes(type, n, 3, random);
      Bytes expected(n * size), dst(n * size + 6, std::byte{0x5a}),
          also(n * size + 3, std::byte{0x5a});
      r.combine(expected.data(), a.data() + 1, b.data() + 3, n);
      r.combine_twice(dst.data() + 5, also.data() + 2, a.data() + 1, b.data() + 3, n);
      expect_same(type, op, dst.data() + 5, expected.data(), n, "the first place");
      expect_same(type, op, also.data() + 2, expected.data(), n, "the second place");
      for (const std::byte beside : {dst[4], dst[n * size + 5], also[1], also[n * size + 2]})
        ASSERT_EQ(beside, std::byte{0x5a});
      Bytes in_a = a, in_b = b;
      r.combine_twice(in_a.data() + 1, in_b.data() + 3, in_a.data() + 1, in_b.data() + 3, n);
      expect_same(type, op, in_a.data() + 1, expected.data(), n, "dst is a");
      expect_same(type, op, in_b.data() + 3, expected.data(), n, "also is b");
      r.combine_twice(b.data() + 3, a.data() + 1, a.data() + 1, b.data() + 3, n);
      expect_same(type, op, b.data() + 3, expected.data(), n, "dst is b");
      expect_same(type, op, a.data() + 1, expected.data(), n, "also is a");
    }
  });
}

TEST_P(Reduce, CombinesManyWithOneRounding) {
  std::mt19937 random(2);
  for_each_reduction([&](DataType type, ReduceOp op, const Reduction& r) {
    const Reference& ref = kReferences[static_cast<size_t>(type)];
    const size_t size = size_of(type);
    for (const size_t n : {0, 1, 5, 64, 131, 1000}) {
      for (const size_t count : {1, 2, 3, 8}) {
        std::vector<Bytes> storage;
        std::vector<const std::byte*> sources;
        for (size_t s = 0; s < count; ++s) storage.push_back(random_bytes(type, n, 1, random));
        for (const Bytes& bytes : storage) sources.push_back(bytes.data() + 1);
        Bytes expected(n * size), dst(n * size);
        ref.many(op, expected.data(), sources, n, size);
        r.combine_many(dst.data(), sources, n);
        expect_same(type, op, dst.data(), expected.data(), n, "many");
        r.combine_many(storage.back().data() + 1, sources, n);
        expect_same(type, op, storage.back().data() + 1, expected.data(), n,
                    "many, dst is the last source");
      }
    }
  });
}

TEST_P(Reduce, ScalesManyWithOneRounding) {
  std::mt19937 random(3);
  for_each_reduction([&](DataType type, ReduceOp op, const Reduction& r) {
    if (r.combine_scaled == nullptr) return;
    const Reference& ref = kReferences[static_cast<size_t>(type)];
    const size_t size = size_of(type);
    const Scaling scaling = is_integer(type) ? Scaling{1, 3} : Scaling{1.0 / 3, 1.7};
    for (const size_t n : kSizes) {
      for (const size_t count : {1, 2, 3, 8}) {
        std::vector<Bytes> storage;
        std::vector<const std::byte*> sources;
        for (size_t s = 0; s < count; ++s) storage.push_back(random_bytes(type, n, 1, random));
        for (const Bytes& bytes : storage) sources.push_back(bytes.data() + 1);
        Bytes expected(n * size), dst(n * size), also(n * size + 2, std::byte{0x5a});
        ref.scaled(expected.data(), sources, n, size, scaling.input, scaling.result);
        r.combine_scaled(dst.data(), also.data() + 1, sources, n, scaling);
        expect_same(type, op, dst.data(), expected.data(), n, "the first place");
        expect_same(type, op, also.data() + 1, expected.data(), n, "the second place");
        ASSERT_EQ(also.front(), std::byte{0x5a});
        ASSERT_EQ(also.back(), std::byte{0x5a});
        std::byte* const last = storage.back().data() + 1;
        std::byte* const first = count > 1 ? storage.front().data() + 1 : nullptr;
        r.combine_scaled(last, first, sources, n, scaling);
        expect_same(type, op, last, expected.data(), n, "dst is the last source");
        if (first != nullptr) expect_same(type, op, first, expected.data(), n, "also is the first");
      }
    }
  });
}

// Whatever the number of ranks: the bits of the sum times 1 / ranks.
TEST_P(Reduce, AveragesLikeASumThatIsScaled) {
  std::mt19937 random(6);
  std::uniform_real_distribution<float> numbers(-1000, 1000);
  constexpr size_t kElements = 1001;
  const Reduction& r = reduction(DataType::kFloat32, ReduceOp::kAvg);
  for (const int ranks : {1, 2, 3, 5, 7, 8, 64}) {
    std::vector<std::vector<float>> inputs(static_cast<size_t>(ranks));
    std::vector<const std::byte*> sources;
    std::vector<float> expected(kElements), average(kElements);
    for (auto& input : inputs) {
      for (size_t i = 0; i < kElements; ++i) input.push_back(numbers(random));
      for (size_t i = 0; i < kElements; ++i)
        expected[i] = sources.empty() ? input[i] : expected[i] + input[i];
      sources.push_back(reinterpret_cast<const std::byte*>(input.data()));
    }
    for (float& x : expected) x *= static_cast<float>(1.0 / ranks);
    r.combine_all(reinterpret_cast<std::byte*>(average.data()), nullptr, sources, kElements,
                  scaling(DataType::kFloat32, ReduceOp::kAvg, ranks, 1));
    ASSERT_EQ(average, expected) << ranks;
  }
}

TEST_P(Reduce, GivesTheSameBitsInEitherOrder) {
  std::mt19937 random(4);
  constexpr size_t kElements = 3001;
  for_each_reduction([&](DataType type, ReduceOp op, const Reduction& r) {
    const Bytes a = random_bytes(type, kElements, 0, random),
                b = random_bytes(type, kElements, 0, random);
    Bytes forward(a.size()), backward(a.size());
    r.combine(forward.data(), a.data(), b.data(), kElements);
    r.combine(backward.data(), b.data(), a.data(), kElements);
    expect_same(type, op, forward.data(), backward.data(), kElements, "a op b against b op a");
  });
}

// All patterns of a type against a few partners that make ties, overflows and cancellations.
void expect_all_patterns(DataType type, const std::vector<uint16_t>& partners) {
  const Reference& ref = kReferences[static_cast<size_t>(type)];
  const size_t size = size_of(type), patterns = size_t{1} << (8 * size);
  Bytes all(patterns * size), partner(patterns * size), expected(patterns * size),
      dst(patterns * size);
  for (size_t i = 0; i < patterns; ++i) std::memcpy(all.data() + i * size, &i, size);
  for (const uint16_t bits : partners) {
    for (size_t i = 0; i < patterns; ++i) std::memcpy(partner.data() + i * size, &bits, size);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
      ref.many(op, expected.data(), {all.data(), partner.data()}, patterns, size);
      reduction(type, op).combine(dst.data(), all.data(), partner.data(), patterns);
      expect_same(type, op, dst.data(), expected.data(), patterns,
                  "with partner " + std::to_string(bits));
    }
  }
  for (const double factor : {1.0, -1.0 / 3, 0.5, 1e-3, 100.0}) {
    reduction(type, ReduceOp::kAvg).scale(dst.data(), all.data(), patterns, {.input = factor});
    reduction(type, ReduceOp::kAvg).scale(partner.data(), dst.data(), patterns, {});
    expect_same(type, ReduceOp::kAvg, partner.data(), dst.data(), patterns, "times one");
    if (factor == 1.0)
      expect_same(type, ReduceOp::kAvg, dst.data(), all.data(), patterns, "times one");
  }
}

TEST_P(Reduce, RoundsEveryFloat16) {
  expect_all_patterns(DataType::kFloat16,
                      {0, 1, 0x8000, 0x3c00, 0xbc01, 0x3555, 0x7bff, 0x7c00, 0x7e00, 0x1001});
}
TEST_P(Reduce, RoundsEveryBFloat16) {
  expect_all_patterns(DataType::kBFloat16,
                      {0, 1, 0x8000, 0x3f80, 0xbf81, 0x3eab, 0x7f7f, 0x7f80, 0x7fc0, 0x7f81});
}
TEST_P(Reduce, RoundsEveryPairOfFloat8) {
  std::vector<uint16_t> partners(256);
  for (uint16_t i = 0; i < 256; ++i) partners[i] = i;
  expect_all_patterns(DataType::kFloat8E4M3FN, partners);
  expect_all_patterns(DataType::kFloat8E5M2, partners);
}

TEST_P(Reduce, TreatsAnyByteButZeroAsTrue) {
  const Bytes a{std::byte{2}, std::byte{0}, std::byte{255}, std::byte{0}};
  const Bytes b{std::byte{4}, std::byte{8}, std::byte{0}, std::byte{0}};
  const auto result = [&](ReduceOp op) {
    Bytes dst(4);
    reduction(DataType::kBool, op).combine(dst.data(), a.data(), b.data(), 4);
    return dst;
  };
  const std::byte no{0}, yes{1};
  EXPECT_EQ(result(ReduceOp::kSum), (Bytes{yes, yes, yes, no}));
  EXPECT_EQ(result(ReduceOp::kProduct), (Bytes{yes, no, no, no}));
  EXPECT_EQ(result(ReduceOp::kBitXor), (Bytes{no, yes, yes, no}));
}

INSTANTIATE_TEST_SUITE_P(AllTargets, Reduce, ::testing::ValuesIn(targets()),
                         [](const auto& target) {
                           return std::string(hwy::TargetName(target.param));
                         });

TEST(ReduceTable, HasExactlyWhatTorchDefines) {
  const auto is_float = [](DataType t) { return t <= DataType::kFloat8E5M2; };
  const auto is_complex = [](DataType t) { return t >= DataType::kComplex64; };
  for (int t = 0; t < kDataTypes; ++t) {
    const DataType type = type_at(t);
    const auto has = [&](ReduceOp op) { return reduction(type, op).valid(); };
    const auto scales = [&](ReduceOp op) { return reduction(type, op).combine_scaled != nullptr; };
    SCOPED_TRACE(name(type));
    EXPECT_TRUE(has(ReduceOp::kSum) && has(ReduceOp::kProduct));
    EXPECT_FALSE(scales(ReduceOp::kSum) || scales(ReduceOp::kProduct) || scales(ReduceOp::kMin));
    EXPECT_EQ(has(ReduceOp::kMin), !is_complex(type));
    EXPECT_EQ(has(ReduceOp::kMax), !is_complex(type));
    EXPECT_EQ(has(ReduceOp::kAvg), type != DataType::kBool);
    EXPECT_EQ(scales(ReduceOp::kAvg), type != DataType::kBool);
    for (const ReduceOp op : {ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor}) {
      EXPECT_EQ(has(op), !is_float(type) && !is_complex(type));
    }
    EXPECT_EQ(has(ReduceOp::kPreMulSum), is_float(type) || is_complex(type));
    EXPECT_EQ(scales(ReduceOp::kPreMulSum), is_float(type) || is_complex(type));
    for (int o = 0; o < kReduceOps; ++o) {
      const Reduction r = reduction(type, op_at(o));
      EXPECT_EQ(r.combine != nullptr, r.combine_many != nullptr);
      EXPECT_EQ(r.combine != nullptr, r.combine_twice != nullptr);
    }
  }
}

TEST(ReduceTable, NamesItsInstructionSet) {
  for (const int64_t target : targets()) {
    use_target(target);
    EXPECT_STREQ(reduction_target(), hwy::TargetName(target));
  }
  use_target(0);
}

#if HWY_ARCH_X86
// A set is used exactly if the kernel lists all flags of the processor that the set needs.
TEST(ReduceTable, TakesTheInstructionSetsThatTheSystemTellsOf) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && !line.starts_with("flags")) {
  }
  std::istringstream words(line);
  const std::set<std::string> flags{std::istream_iterator<std::string>(words), {}};
  const auto expect = [&](int64_t target, const std::vector<std::string>& wanted) {
    const bool all = std::ranges::all_of(wanted, [&](auto& flag) { return flags.contains(flag); });
    EXPECT_EQ((hwy::SupportedTargets() & target) != 0, all) << hwy::TargetName(target);
  };
  expect(HWY_SSE4, {"sse4_2", "pclmulqdq", "aes"});
  expect(HWY_AVX2, {"avx2", "bmi1", "bmi2", "fma", "f16c", "abm"});
  expect(HWY_AVX3, {"avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw", "f16c"});
}
#endif

}  // namespace
}  // namespace hccl_like
