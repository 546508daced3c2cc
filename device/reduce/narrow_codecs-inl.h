// Conversion of 8- and 16-bit floats to and from float32 registers, compiled once for each
// instruction set. Integer arithmetic: independent of instruction set and flush-to-zero mode.
#if defined(HCCL_LIKE_DEVICE_REDUCE_NARROW_CODECS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HCCL_LIKE_DEVICE_REDUCE_NARROW_CODECS_INL_H_
#undef HCCL_LIKE_DEVICE_REDUCE_NARROW_CODECS_INL_H_
#else
#define HCCL_LIKE_DEVICE_REDUCE_NARROW_CODECS_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "device/reduce/kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hccl_like {
namespace HWY_NAMESPACE {

// The factor as float32. NaN gets no payload: rounding to bfloat16 relies on that.
HWY_INLINE float narrow_factor(double value) {
  return std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(value);
}

// A codec from the conversion of one register.
template <class Conversion>
struct Converted {
  using Lane = typename Conversion::Lane;
  static constexpr size_t kLanesPerElement = 1;
  static constexpr hn::ScalableTag<float> kFloats{};
  static constexpr size_t kMaxQuad = 4 * hn::MaxLanes(kFloats);

  static HWY_INLINE size_t quad() { return 4 * hn::Lanes(kFloats); }
  template <int kIndex>
  static HWY_INLINE auto get(const Lane* p) {
    return Conversion::widen(p + kIndex * hn::Lanes(kFloats));
  }
  template <class V>
  static HWY_INLINE void put(Lane* p, V v0, V v1, V v2, V v3) {
    const size_t lanes = hn::Lanes(kFloats);
    Conversion::narrow(p, v0);
    Conversion::narrow(p + lanes, v1);
    Conversion::narrow(p + 2 * lanes, v2);
    Conversion::narrow(p + 3 * lanes, v3);
  }
  static HWY_INLINE auto factor(double value) { return hn::Set(kFloats, narrow_factor(value)); }
};

// bfloat16 is the upper half of float32. Rounds to nearest even: up if the lower half exceeds half
// a unit, or equals it and the upper half is odd. NaN needs no special case: its lower half is
// zero, because it was widened from 16 bits or made by the processor.
#if HWY_TARGET == HWY_SCALAR
struct BFloat16Conversion {
  using Lane = uint16_t;
  static constexpr hn::ScalableTag<float> kFloats{};
  static constexpr hn::ScalableTag<uint32_t> kBits{};

  static HWY_INLINE auto widen(const uint16_t* p) {
    return hn::BitCast(kFloats, hn::Set(kBits, uint32_t{*p} << 16));
  }
  template <class V>
  static HWY_INLINE void narrow(uint16_t* p, V v) {
    const uint32_t bits = hn::GetLane(hn::BitCast(kBits, v)), odd = bits >> 16 & 1;
    *p = static_cast<uint16_t>((bits + 0x7fff + odd) >> 16);
  }
};
using BFloat16 = Converted<BFloat16Conversion>;
#else
// Two neighbours share a 32-bit lane: one needs a shift, the other a mask, and no lane moves.
struct BFloat16 {
  using Lane = uint16_t;
  static constexpr size_t kLanesPerElement = 1;
  static constexpr hn::ScalableTag<float> kFloats{};
  static constexpr hn::ScalableTag<uint32_t> kBits{};
  static constexpr size_t kMaxQuad = 4 * hn::MaxLanes(kFloats);
  static constexpr uint32_t kUpperHalf = 0xffff0000;

  static HWY_INLINE size_t quad() { return 4 * hn::Lanes(kFloats); }

  template <int kIndex>
  static HWY_INLINE auto get(const uint16_t* p) {
    const auto pair = hn::LoadU(kBits, pairs(p) + kIndex / 2 * hn::Lanes(kBits));
    if constexpr (kIndex % 2 == 0) {
      return hn::BitCast(kFloats, hn::ShiftLeft<16>(pair));
    } else {
      return hn::BitCast(kFloats, hn::And(pair, hn::Set(kBits, kUpperHalf)));
    }
  }

  template <class V>
  static HWY_INLINE void put(uint16_t* p, V even0, V odd0, V even1, V odd1) {
    hn::StoreU(join(even0, odd0), kBits, pairs(p));
    hn::StoreU(join(even1, odd1), kBits, pairs(p) + hn::Lanes(kBits));
  }

  static HWY_INLINE auto factor(double value) { return hn::Set(kFloats, narrow_factor(value)); }

 private:
  static HWY_INLINE const uint32_t* pairs(const uint16_t* p) {
    return reinterpret_cast<const uint32_t*>(p);
  }
  static HWY_INLINE uint32_t* pairs(uint16_t* p) { return reinterpret_cast<uint32_t*>(p); }

  // Splits the halves of two registers, then rounds them together.
  template <class V>
  static HWY_INLINE auto join(V even, V odd) {
    const hn::ScalableTag<uint16_t> halves;
    const auto even_upper = hn::ShiftRight<16>(hn::BitCast(kBits, even));
    const auto odd_lower = hn::ShiftLeft<16>(hn::BitCast(kBits, odd));
    const auto upper = hn::OddEven(hn::BitCast(halves, odd), hn::BitCast(halves, even_upper));
    const auto lower = hn::OddEven(hn::BitCast(halves, odd_lower), hn::BitCast(halves, even));
    const auto one = hn::Set(halves, uint16_t{1});
    // 0x8000 if the upper half is odd, else 0x8001.
    const auto least = hn::Or(hn::AndNot(upper, one), hn::Set(halves, uint16_t{0x8000}));
    return hn::BitCast(kBits, hn::IfThenElse(hn::Lt(lower, least), upper, hn::Add(upper, one)));
  }
};
#endif

// Parameters of a float format. Values from kSpecial on are infinity and NaN.
struct Float16Format {
  using Lane = uint16_t;
  static constexpr int kExponentBits = 5, kMantissaBits = 10;
  static constexpr uint32_t kSpecial = 0x7c00;   // infinity
  static constexpr uint32_t kOverflow = 0x7c00;  // result of an overflow
  static constexpr uint32_t kNan = 0x7e00;       // ored to the payload
};
struct Float8E5M2Format {
  using Lane = uint8_t;
  static constexpr int kExponentBits = 5, kMantissaBits = 2;
  static constexpr uint32_t kSpecial = 0x7c;
  static constexpr uint32_t kOverflow = 0x7c;
  static constexpr uint32_t kNan = 0x7f;
};
// No infinity: overflow gives the largest finite number, 448, as in torch.
struct Float8E4M3FNFormat {
  using Lane = uint8_t;
  static constexpr int kExponentBits = 4, kMantissaBits = 3;
  static constexpr uint32_t kSpecial = 0x7f;
  static constexpr uint32_t kOverflow = 0x7e;
  static constexpr uint32_t kNan = 0x7f;
};

// Converts any such format with integer arithmetic.
template <class Format>
struct BitConversion {
  using Lane = typename Format::Lane;
  static constexpr hn::ScalableTag<float> kFloats{};
  static constexpr hn::RebindToUnsigned<hn::ScalableTag<float>> kBits{};
  static constexpr hn::RebindToSigned<hn::ScalableTag<float>> kSigned{};
  static constexpr hn::Rebind<Lane, hn::ScalableTag<float>> kLanes{};

  static constexpr int kBias = (1 << (Format::kExponentBits - 1)) - 1;
  static constexpr int kShift = 23 - Format::kMantissaBits;  // of the mantissa
  static constexpr int kSignShift = 31 - Format::kExponentBits - Format::kMantissaBits;
  static constexpr uint32_t kSign = 0x80000000;
  static constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << 23;
  static constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(128 - kBias) << 23;
  // A float32 whose last place is the format's smallest subnormal: adding it to a small number
  // rounds that number, with the result in the low bits.
  static constexpr uint32_t kMagic = static_cast<uint32_t>(127 + 1 - kBias + kShift) << 23;
  static constexpr uint32_t kInfinity = 0x7f800000;

  static HWY_INLINE auto widen(const Lane* p) {
    const auto raw = hn::PromoteTo(kBits, hn::LoadU(kLanes, p));
    const auto sign = hn::And(hn::ShiftLeft<kSignShift>(raw), set(kSign));
    const auto magnitude = hn::AndNot(set(kSign >> kSignShift), raw);
    const auto normal = hn::Add(hn::ShiftLeft<kShift>(magnitude), set(kRebias));
    const auto magic = hn::BitCast(kFloats, set(kMagic));
    const auto subnormal =
        hn::BitCast(kBits, hn::Sub(hn::BitCast(kFloats, hn::Or(magnitude, set(kMagic))), magic));
    const auto is_subnormal = hn::Lt(magnitude, set(1u << Format::kMantissaBits));
    const auto is_special = hn::Gt(magnitude, set(Format::kSpecial - 1));
    const auto finite = hn::IfThenElse(is_subnormal, subnormal, normal);
    const auto all = hn::Or(finite, hn::IfThenElseZero(is_special, set(kInfinity)));
    return hn::BitCast(kFloats, hn::Or(all, sign));
  }

  template <class V>
  static HWY_INLINE void narrow(Lane* p, V v) {
    const auto bits = hn::BitCast(kBits, v);
    const auto sign = hn::And(bits, set(kSign));
    const auto magnitude = hn::Xor(bits, sign);
    const auto odd = hn::And(hn::ShiftRight<kShift>(magnitude), set(1));
    const auto rounded = hn::Add(magnitude, hn::Add(odd, set((1u << (kShift - 1)) - 1)));
    const auto normal = hn::ShiftRight<kShift>(hn::Sub(rounded, set(kRebias)));
    const auto magic = hn::BitCast(kFloats, set(kMagic));
    const auto subnormal =
        hn::Sub(hn::BitCast(kBits, hn::Add(hn::BitCast(kFloats, magnitude), magic)), set(kMagic));
    const auto payload =
        hn::And(hn::ShiftRight<kShift>(magnitude), set((1u << Format::kMantissaBits) - 1));
    const auto nan = hn::Or(payload, set(Format::kNan));
    const auto finite = hn::IfThenElse(hn::Lt(magnitude, set(kSmallestNormal)), subnormal,
                                       hn::Min(normal, set(Format::kOverflow)));
    const auto all = hn::IfThenElse(hn::Gt(magnitude, set(kInfinity)), nan, finite);
    const auto result = hn::Or(all, hn::ShiftRight<kSignShift>(sign));
    hn::StoreU(hn::DemoteTo(kLanes, hn::BitCast(kSigned, result)), kLanes, p);
  }

 private:
  static HWY_INLINE auto set(uint32_t value) { return hn::Set(kBits, value); }
};

// One conversion instruction, if the processor has it.
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)) || HWY_ARCH_ARM_A64
struct Float16Conversion {
  using Lane = uint16_t;
  static constexpr hn::ScalableTag<float> kFloats{};
  static constexpr hn::Rebind<hwy::float16_t, hn::ScalableTag<float>> kHalves{};
  static constexpr hn::Rebind<uint16_t, hn::ScalableTag<float>> kLanes{};

  static HWY_INLINE auto widen(const uint16_t* p) {
    return hn::PromoteTo(kFloats, hn::BitCast(kHalves, hn::LoadU(kLanes, p)));
  }
  template <class V>
  static HWY_INLINE void narrow(uint16_t* p, V v) {
    hn::StoreU(hn::BitCast(kLanes, hn::DemoteTo(kHalves, v)), kLanes, p);
  }
};
#else
using Float16Conversion = BitConversion<Float16Format>;
#endif

}  // namespace HWY_NAMESPACE
}  // namespace hccl_like
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
