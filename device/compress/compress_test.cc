// Every format on every instruction set of this processor against numbers computed in float64, and
// the rules of the formats one by one.
#include "device/compress/compress.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace hccl_like {
namespace {

using enum Compression;
using Floats = std::vector<float>;
using Bytes = std::vector<std::byte>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr size_t kBlock = Codec::kBlock;

Bytes encoded(Compression compression, const Floats& floats) {
  Bytes bytes(codec(compression)->bytes(floats.size()));
  codec(compression)->encode(bytes.data(), std::as_bytes(std::span(floats)).data(), floats.size());
  return bytes;
}

Floats decoded(Compression compression, const Bytes& bytes, size_t elements) {
  Floats floats(elements);
  codec(compression)
      ->decode(std::as_writable_bytes(std::span(floats)).data(), bytes.data(), elements);
  return floats;
}

Floats rounded(Compression compression, const Floats& floats) {
  return decoded(compression, encoded(compression, floats), floats.size());
}

// A block that begins with these numbers.
Floats block(std::initializer_list<float> first) {
  Floats floats(first);
  floats.resize(kBlock);
  return floats;
}

uint8_t scale_of(const Bytes& bytes) { return static_cast<uint8_t>(bytes[0]); }

// The magnitudes of the elements with an exact scale of 1, by code.
std::vector<double> magnitudes(Compression compression) {
  if (compression == kMx4) return {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  std::vector<double> all;
  for (int i = 0; i < 128; ++i) all.push_back(i / 64.0);
  return all;
}

// The smallest exponent of a scale: the smallest element but 0 is a normal float32.
int smallest_exponent(Compression compression) { return compression == kMx4 ? -125 : -120; }
// The largest: with it the largest element is finite.
int largest_exponent(Compression compression) { return compression == kMx4 ? 125 : 127; }

// In float64, straight from the definition: the smallest scale with which nothing is cut off, and
// the nearest element, of two the one with the even code.
Floats reference(Compression compression, const Floats& block) {
  double largest = 0;
  for (const float x : block) {
    if (!std::isfinite(x)) return Floats(block.size(), kNan);
    largest = std::max(largest, std::abs(double{x}));
  }
  const std::vector<double> elements = magnitudes(compression);
  int exponent = smallest_exponent(compression);
  while (exponent < largest_exponent(compression) &&
         largest > std::ldexp(elements.back(), exponent))
    ++exponent;
  Floats result;
  for (const float x : block) {
    const double wanted = std::ldexp(std::abs(double{x}), -exponent);
    size_t best = 0;
    for (size_t code = 1; code < elements.size(); ++code) {
      const double now = std::abs(elements[code] - wanted),
                   then = std::abs(elements[best] - wanted);
      if (now < then || (now == then && code % 2 == 0)) best = code;
    }
    result.push_back(static_cast<float>(std::copysign(std::ldexp(elements[best], exponent), x)));
  }
  return result;
}

std::string words(Compression compression) { return std::string(name(compression)); }

std::vector<int64_t> targets() {
  std::vector<int64_t> result;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) result.push_back(target);
  return result;
}

class Compress : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { use(GetParam()); }
  void TearDown() override { use(0); }

 private:
  static void use(int64_t target) {
    hwy::GetChosenTarget().Update(target == 0 ? hwy::SupportedTargets() : target);
  }
};

TEST_P(Compress, TakesTheBytesOfItsFormat) {
  EXPECT_EQ(codec(kNone), nullptr);
  EXPECT_EQ(codec(kBf16)->block_bytes, 64u);
  EXPECT_EQ(codec(kMx8)->block_bytes, 33u);
  EXPECT_EQ(codec(kMx4)->block_bytes, 17u);
  EXPECT_EQ(codec(kMx8)->bytes(0), 0u);
  EXPECT_EQ(codec(kMx8)->bytes(1), 33u);
  EXPECT_EQ(codec(kMx8)->bytes(32), 33u);
  EXPECT_EQ(codec(kMx4)->bytes(33), 34u);
}

// Numbers of all magnitudes, and magnitudes just around the largest of a scale.
std::vector<Floats> blocks() {
  std::vector<Floats> all;
  std::mt19937 random(7);
  std::uniform_int_distribution<int> exponents(-149, 127), spread(0, 12);
  std::uniform_real_distribution<float> mantissas(-2, 2);
  for (int i = 0; i < 2000; ++i) {
    const int exponent = exponents(random);
    Floats floats;
    for (size_t j = 0; j < kBlock; ++j)
      floats.push_back(std::ldexp(mantissas(random), exponent - spread(random) % (i % 12 + 1)));
    for (float& x : floats)
      if (!std::isfinite(x)) x = kLargest;
    all.push_back(floats);
  }
  for (const float edge : {1.5f, 127 / 64.0f, 6.0f, 1.0f, 2.0f}) {
    for (const int exponent : {-140, -127, -126, -121, -120, -119, -1, 0, 1, 120, 125, 126}) {
      const float at = std::ldexp(edge, exponent);
      for (const float x : {std::nextafter(at, 0.0f), at, std::nextafter(at, kInfinite)})
        if (std::isfinite(x)) all.push_back(block({x, -x / 2, x / 3, -x / 100, x / 256}));
    }
  }
  all.push_back(block({kLargest, -kLargest, kLargest / 2}));
  return all;
}

TEST_P(Compress, RoundsLikeTheDefinition) {
  for (const Compression compression : {kMx8, kMx4}) {
    for (const Floats& floats : blocks()) {
      const Floats wanted = reference(compression, floats), found = rounded(compression, floats);
      for (size_t i = 0; i < kBlock; ++i)
        ASSERT_EQ(found[i], wanted[i]) << words(compression) << " of " << floats[i];
    }
  }
}

TEST_P(Compress, KeepsTheBoundOfTheError) {
  for (const Floats& floats : blocks()) {
    double largest = 0;
    for (const float x : floats) largest = std::max(largest, std::abs(double{x}));
    const Floats in8 = rounded(kMx8, floats), in4 = rounded(kMx4, floats),
                 in16 = rounded(kBf16, floats);
    for (size_t i = 0; i < kBlock; ++i) {
      const double x = floats[i];
      ASSERT_LE(std::abs(in8[i] - x), largest / 127 + 0x1p-127) << x << " beside " << largest;
      const double fifth = largest <= 0x1.8p127 ? largest / 5 : largest / 4;  // cut off above
      ASSERT_LE(std::abs(in4[i] - x), fifth + 0x1p-127) << x << " beside " << largest;
      if (std::isfinite(in16[i]))
        ASSERT_LE(std::abs(in16[i] - x), std::abs(x) / 256 + 0x1p-134) << x;
      else
        ASSERT_GT(std::abs(x), 0x1.fep127) << x;
    }
  }
}

TEST_P(Compress, IsExactTheSecondTime) {
  for (const Compression compression : {kBf16, kMx8, kMx4}) {
    for (const Floats& floats : blocks()) {
      const Floats once = rounded(compression, floats);
      ASSERT_EQ(rounded(compression, once), once) << words(compression);
    }
  }
}

TEST_P(Compress, TakesTheSmallestScaleThatCutsNothingOff) {
  EXPECT_EQ(scale_of(encoded(kMx8, block({1.0f}))), 127);
  EXPECT_EQ(scale_of(encoded(kMx8, block({127 / 64.0f}))), 127);
  EXPECT_EQ(scale_of(encoded(kMx8, block({std::nextafter(127 / 64.0f, 2.0f)}))), 128);
  EXPECT_EQ(scale_of(encoded(kMx4, block({6.0f}))), 127);
  EXPECT_EQ(scale_of(encoded(kMx4, block({std::nextafter(6.0f, 7.0f)}))), 128);
  EXPECT_EQ(scale_of(encoded(kMx4, block({3.0f}))), 126);
}

TEST_P(Compress, RoundsTiesToEven) {
  // A scale of 1 in both: units of 1/64, and codes.
  const float unit = 1 / 64.0f;
  EXPECT_EQ(rounded(kMx8, block({1, 0.5f * unit, 1.5f * unit, 2.5f * unit, -2.5f * unit})),
            block({1, 0, 2 * unit, 2 * unit, -2 * unit}));
  EXPECT_EQ(rounded(kMx4, block({6, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, -5, -0.75f})),
            block({6, 0, 1, 1, 2, 2, 4, 4, -4, -1}));
  const float two = std::bit_cast<float>(0x3f808000u), odd = std::bit_cast<float>(0x3f818000u);
  EXPECT_EQ(rounded(kBf16, {two, odd}), (Floats{1.0f, std::bit_cast<float>(0x3f820000u)}));
}

TEST_P(Compress, PacksElementsWhereTheHeaderSays) {
  Floats floats(kBlock, 0.0f);
  floats[0] = 6, floats[16] = -0.5f, floats[3] = 1.5f, floats[31] = -4;
  const Bytes bytes = encoded(kMx4, floats);
  EXPECT_EQ(bytes[0], std::byte{127});
  EXPECT_EQ(bytes[1], std::byte{0x97});
  EXPECT_EQ(bytes[4], std::byte{0x03});
  EXPECT_EQ(bytes[16], std::byte{0xe0});
  floats[0] = 1, floats[31] = -127 / 64.0f;
  const Bytes wider = encoded(kMx8, floats);
  EXPECT_EQ(wider[0], std::byte{127});
  EXPECT_EQ(wider[1], std::byte{64});
  EXPECT_EQ(wider[32], std::byte{0x81});
}

TEST_P(Compress, ABlockOfZerosIsOneOfZeros) {
  for (const Compression compression : {kBf16, kMx8, kMx4}) {
    const Floats found = rounded(compression, Floats(kBlock, 0.0f));
    for (const float x : found) EXPECT_EQ(std::bit_cast<uint32_t>(x), 0u) << words(compression);
    EXPECT_EQ(rounded(compression, Floats(kBlock, -0.0f)), found);
  }
}

TEST_P(Compress, SubnormalNumbersBecomeZeroOrTheSmallestElement) {
  const float smallest = 0x1p-126f;  // of both formats with the smallest scale
  for (const Compression compression : {kMx8, kMx4})
    EXPECT_EQ(
        rounded(compression, block({0x1p-149f, 0x1p-128f, 0x1p-127f, 0x1.8p-127f, -0x1.8p-127f})),
        block({0, 0, 0, smallest, -smallest}))
        << words(compression);
}

TEST_P(Compress, ABlockWithANanOrAnInfinityIsAllNan) {
  for (const Compression compression : {kMx8, kMx4}) {
    for (const float bad : {kNan, kInfinite, -kInfinite}) {
      Floats floats(3 * kBlock, 2.0f);
      floats[kBlock + 5] = bad;
      EXPECT_EQ(static_cast<uint8_t>(encoded(compression, floats)[codec(compression)->block_bytes]),
                0xff);
      const Floats found = rounded(compression, floats);
      for (size_t i = 0; i < found.size(); ++i)
        if (i / kBlock == 1)
          ASSERT_TRUE(std::isnan(found[i])) << words(compression) << i;
        else
          ASSERT_EQ(found[i], 2.0f) << words(compression) << i;
    }
  }
}

TEST_P(Compress, Bf16KeepsNansAndInfinitiesOneByOne) {
  const Floats found =
      rounded(kBf16, {kNan, 1, kInfinite, -kInfinite, kLargest, std::bit_cast<float>(0x7f800001u)});
  EXPECT_TRUE(std::isnan(found[0]));
  EXPECT_EQ(found[1], 1.0f);
  EXPECT_EQ(found[2], kInfinite);
  EXPECT_EQ(found[3], -kInfinite);
  EXPECT_EQ(found[4], kInfinite);  // rounds up
  EXPECT_TRUE(std::isnan(found[5]));
}

TEST_P(Compress, ShortBlocksAreThoseFilledWithZeros) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> numbers(-9, 9);
  for (const Compression compression : {kBf16, kMx8, kMx4}) {
    for (size_t count = 0; count < 3 * kBlock; ++count) {
      Floats floats(count);
      for (float& x : floats) x = numbers(random);
      Floats filled = floats;
      filled.resize((count + kBlock - 1) / kBlock * kBlock);
      ASSERT_EQ(encoded(compression, floats), encoded(compression, filled));
      Floats found = rounded(compression, filled);
      found.resize(count);
      ASSERT_EQ(rounded(compression, floats), found) << words(compression) << count;
    }
  }
}

std::string target_name(const ::testing::TestParamInfo<int64_t>& target) {
  return hwy::TargetName(target.param);
}

INSTANTIATE_TEST_SUITE_P(Targets, Compress, ::testing::ValuesIn(targets()), target_name);

}  // namespace
}  // namespace hccl_like
