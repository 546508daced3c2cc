#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/compress/compress.cc"
#include <hwy/foreach_target.h>
// Highway's order: foreach_target.h first.
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "device/compress/compress.h"

HWY_BEFORE_NAMESPACE();
namespace hccl_like {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Registers that divide half a block.
constexpr hn::CappedTag<float, 16> kFloats{};
constexpr hn::RebindToUnsigned<decltype(kFloats)> kBits{};
constexpr hn::RebindToSigned<decltype(kFloats)> kInts{};
constexpr hn::Rebind<uint8_t, decltype(kFloats)> kCodes{};
constexpr hn::Rebind<int8_t, decltype(kFloats)> kSignedCodes{};
constexpr hn::Rebind<uint16_t, decltype(kFloats)> kHalves{};

constexpr uint32_t kInfinity = 0x7f800000, kMagnitude = 0x7fffffff, kQuietNan = 0x7fc00000;
constexpr uint8_t kNanScale = 0xff;
constexpr int kBias = 127;  // of float32 and of E8M0

HWY_INLINE float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + kBias) << 23);
}

// The bits of the largest magnitude: magnitudes compare like their bits, and NaN is the largest.
HWY_INLINE uint32_t largest_magnitude(const float* from) {
  const auto mask = hn::Set(kBits, kMagnitude);
  auto most = hn::Zero(kBits);
  for (size_t i = 0; i < Codec::kBlock; i += hn::Lanes(kFloats))
    most = hn::Max(most, hn::And(hn::BitCast(kBits, hn::LoadU(kFloats, from + i)), mask));
  return hn::GetLane(hn::MaxOfLanes(kBits, most));
}

// Int8 elements: x / scale in units of 1/64, so 127/64 is the largest number.
struct Mx8 {
  static constexpr size_t kBytes = 1 + Codec::kBlock;
  static constexpr int kUnit = 6;
  // Carries into the exponent above 127/64.
  static constexpr uint32_t kRoundUp = 0x7fffff - 0x7e0000;
  static constexpr int kRange = 0;  // exponent of the largest number
  // The unit is a normal float32 then: no result depends on the handling of subnormal numbers.
  static constexpr uint32_t kSmallestScale = 1 + kUnit, kLargestScale = 254;

  static HWY_INLINE void encode(uint8_t* to, const float* from, float per_scale) {
    const auto factor = hn::Set(kFloats, per_scale);
    for (size_t i = 0; i < Codec::kBlock; i += hn::Lanes(kFloats)) {
      const auto numbers = hn::NearestInt(hn::Mul(hn::LoadU(kFloats, from + i), factor));
      const auto within =
          hn::Max(hn::Min(numbers, hn::Set(kInts, int32_t{127})), hn::Set(kInts, int32_t{-127}));
      hn::StoreU(hn::DemoteTo(kSignedCodes, within), kSignedCodes,
                 reinterpret_cast<int8_t*>(to) + i);
    }
  }
  static HWY_INLINE void decode(float* to, const uint8_t* from, float scale) {
    const auto factor = hn::Set(kFloats, scale);
    for (size_t i = 0; i < Codec::kBlock; i += hn::Lanes(kFloats)) {
      const auto numbers =
          hn::PromoteTo(kInts, hn::LoadU(kSignedCodes, reinterpret_cast<const int8_t*>(from) + i));
      hn::StoreU(hn::Mul(hn::ConvertTo(kFloats, numbers), factor), kFloats, to + i);
    }
  }
};

// E2M1 elements: 0, 0.5, 1, 1.5, 2, 3, 4, 6 are the codes 0 to 7; bit 3 is the sign.
struct Mx4 {
  static constexpr size_t kBytes = 1 + Codec::kBlock / 2;
  static constexpr int kUnit = 0;
  static constexpr uint32_t kRoundUp = 0x7fffff - 0x400000;  // above 1.5 * 4
  static constexpr int kRange = 2;
  // As above: the unit is half the scale. The largest number is finite with the largest scale.
  static constexpr uint32_t kSmallestScale = 2, kLargestScale = 252;

  static HWY_INLINE auto codes(const float* from, float per_scale) {
    const auto scaled = hn::Mul(hn::LoadU(kFloats, from), hn::Set(kFloats, per_scale));
    const auto magnitude = hn::Abs(scaled);
    // Codes are 0.5 apart below 2, 1 below 4, and then 2.
    const auto two = hn::Set(kFloats, 2.0f), half = hn::Set(kFloats, 0.5f);
    const auto four = hn::Set(kFloats, 4.0f), one = hn::Set(kFloats, 1.0f);
    const auto below_two = hn::Lt(magnitude, two), below_four = hn::Lt(magnitude, four);
    const auto per_step = hn::IfThenElse(below_two, two, hn::IfThenElse(below_four, one, half));
    const auto first =
        hn::IfThenElse(below_two, hn::Zero(kFloats), hn::IfThenElse(below_four, two, four));
    const auto code =
        hn::Min(hn::Add(hn::NearestInt(hn::Mul(magnitude, per_step)), hn::NearestInt(first)),
                hn::Set(kInts, int32_t{7}));
    const auto sign =
        hn::ShiftRight<28>(hn::AndNot(hn::Set(kBits, kMagnitude), hn::BitCast(kBits, scaled)));
    return hn::Or(hn::BitCast(kBits, code), sign);
  }
  static HWY_INLINE void encode(uint8_t* to, const float* from, float per_scale) {
    constexpr size_t kHalf = Codec::kBlock / 2;
    for (size_t i = 0; i < kHalf; i += hn::Lanes(kFloats)) {
      const auto pair =
          hn::Or(codes(from + i, per_scale), hn::ShiftLeft<4>(codes(from + kHalf + i, per_scale)));
      hn::StoreU(hn::DemoteTo(kCodes, hn::BitCast(kInts, pair)), kCodes, to + i);
    }
  }
  template <class V>
  static HWY_INLINE auto numbers(V codes) {
    const auto code = hn::And(codes, hn::Set(kBits, 7u));
    const auto sign = hn::ShiftLeft<28>(hn::And(codes, hn::Set(kBits, 8u)));
    const auto normal = hn::Add(hn::ShiftLeft<22>(code), hn::Set(kBits, 126u << 23));
    const auto half = hn::IfThenElseZero(hn::Eq(code, hn::Set(kBits, 1u)),
                                         hn::BitCast(kBits, hn::Set(kFloats, 0.5f)));
    const auto magnitude = hn::IfThenElse(hn::Lt(code, hn::Set(kBits, 2u)), half, normal);
    return hn::BitCast(kFloats, hn::Or(magnitude, sign));
  }
  static HWY_INLINE void decode(float* to, const uint8_t* from, float scale) {
    constexpr size_t kHalf = Codec::kBlock / 2;
    const auto factor = hn::Set(kFloats, scale);
    for (size_t i = 0; i < kHalf; i += hn::Lanes(kFloats)) {
      const auto pair = hn::PromoteTo(kBits, hn::LoadU(kCodes, from + i));
      hn::StoreU(hn::Mul(numbers(pair), factor), kFloats, to + i);
      hn::StoreU(hn::Mul(numbers(hn::ShiftRight<4>(pair)), factor), kFloats, to + kHalf + i);
    }
  }
};

// A block with one scale.
template <class Elements>
struct Scaled {
  static constexpr size_t kBytes = Elements::kBytes;

  static HWY_INLINE void encode(uint8_t* to, const float* from) {
    const uint32_t largest = largest_magnitude(from);
    if (largest >= kInfinity) {
      std::memset(to, 0, kBytes);
      to[0] = kNanScale;
      return;
    }
    const uint32_t exponent = (largest + Elements::kRoundUp) >> 23;
    const uint32_t scale = std::clamp(exponent, Elements::kSmallestScale + Elements::kRange,
                                      Elements::kLargestScale + Elements::kRange) -
                           Elements::kRange;
    to[0] = static_cast<uint8_t>(scale);
    Elements::encode(to + 1, from, power_of_two(kBias + Elements::kUnit - static_cast<int>(scale)));
  }
  static HWY_INLINE void decode(float* to, const uint8_t* from) {
    if (from[0] == kNanScale) {
      std::fill_n(to, Codec::kBlock, std::bit_cast<float>(kQuietNan));
      return;
    }
    Elements::decode(to, from + 1, power_of_two(from[0] - kBias - Elements::kUnit));
  }
};

struct BFloat16Block {
  static constexpr size_t kBytes = 2 * Codec::kBlock;

  static HWY_INLINE void encode(uint8_t* to, const float* from) {
    for (size_t i = 0; i < Codec::kBlock; i += hn::Lanes(kFloats)) {
      const auto bits = hn::BitCast(kBits, hn::LoadU(kFloats, from + i));
      const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(kBits, 1u));
      const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(kBits, 0x7fffu)));
      const auto quiet = hn::Or(bits, hn::Set(kBits, 0x400000u));
      const auto is_nan =
          hn::Gt(hn::And(bits, hn::Set(kBits, kMagnitude)), hn::Set(kBits, kInfinity));
      const auto upper = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
      hn::StoreU(hn::DemoteTo(kHalves, hn::BitCast(kInts, upper)), kHalves,
                 reinterpret_cast<uint16_t*>(to) + i);
    }
  }
  static HWY_INLINE void decode(float* to, const uint8_t* from) {
    for (size_t i = 0; i < Codec::kBlock; i += hn::Lanes(kFloats)) {
      const auto upper =
          hn::PromoteTo(kBits, hn::LoadU(kHalves, reinterpret_cast<const uint16_t*>(from) + i));
      hn::StoreU(hn::BitCast(kFloats, hn::ShiftLeft<16>(upper)), kFloats, to + i);
    }
  }
};

template <class Block>
void encode_all(std::byte* to, const std::byte* floats, size_t elements) noexcept {
  auto* out = reinterpret_cast<uint8_t*>(to);
  const auto* in = reinterpret_cast<const float*>(floats);
  for (; elements >= Codec::kBlock; elements -= Codec::kBlock) {
    Block::encode(out, in);
    out += Block::kBytes, in += Codec::kBlock;
  }
  if (elements == 0) return;
  alignas(64) std::array<float, Codec::kBlock> last{};
  std::memcpy(last.data(), in, elements * sizeof(float));
  Block::encode(out, last.data());
}

template <class Block>
void decode_all(std::byte* floats, const std::byte* from, size_t elements) noexcept {
  const auto* in = reinterpret_cast<const uint8_t*>(from);
  auto* out = reinterpret_cast<float*>(floats);
  for (; elements >= Codec::kBlock; elements -= Codec::kBlock) {
    Block::decode(out, in);
    in += Block::kBytes, out += Codec::kBlock;
  }
  if (elements == 0) return;
  alignas(64) std::array<float, Codec::kBlock> last;
  Block::decode(last.data(), in);
  std::memcpy(out, last.data(), elements * sizeof(float));
}

template <class Block>
constexpr Codec codec_of(Compression compression) {
  return {compression, Block::kBytes, encode_all<Block>, decode_all<Block>};
}

const Codec* codec_here(Compression compression) {
  static constexpr Codec kCodecs[] = {codec_of<BFloat16Block>(Compression::kBf16),
                                      codec_of<Scaled<Mx8>>(Compression::kMx8),
                                      codec_of<Scaled<Mx4>>(Compression::kMx4)};
  return &kCodecs[static_cast<size_t>(compression) - 1];
}

}  // namespace HWY_NAMESPACE
}  // namespace hccl_like
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hccl_like {
HWY_EXPORT(codec_here);
const Codec* codec(Compression compression) noexcept {
  return compression == Compression::kNone ? nullptr
                                           : HWY_DYNAMIC_DISPATCH(codec_here)(compression);
}
}  // namespace hccl_like
#endif
