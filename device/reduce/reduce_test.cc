// Every type x operation on every instruction set of this processor against a scalar reference, bit by bit.
#include "device/reduce/reduce.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

namespace hccl_like {
namespace {

using Bytes = std::vector<std::byte>;

// ---- The reference: a type is loaded into Value, combined there, and stored. ----

template <typename T>
T integer_op(ReduceOp op, T a, T b) {
  using U = std::make_unsigned_t<T>;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    case ReduceOp::kProduct:
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kBitAnd:
      return static_cast<T>(static_cast<U>(a) & static_cast<U>(b));
    case ReduceOp::kBitOr:
      return static_cast<T>(static_cast<U>(a) | static_cast<U>(b));
    default:
      return static_cast<T>(static_cast<U>(a) ^ static_cast<U>(b));
  }
}

template <typename T>
T float_op(ReduceOp op, T a, T b) {
  const bool is_min = op == ReduceOp::kMin, is_max = op == ReduceOp::kMax;
  if (op == ReduceOp::kProduct) return a * b;
  if (!is_min && !is_max) return a + b;
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (a == b) return std::signbit(a) == is_min ? a : b;
  return (a < b) == is_min ? a : b;
}

template <typename T>
T load_as(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}
template <typename T>
void store_as(std::byte* p, T value) {
  std::memcpy(p, &value, sizeof(T));
}

template <typename T>
struct Integer {
  using Value = T;
  static Value load(const std::byte* p) { return load_as<T>(p); }
  static void store(std::byte* p, Value v) { store_as(p, v); }
  static Value apply(ReduceOp op, Value a, Value b) { return integer_op(op, a, b); }
  static Value scale(Value v, double divisor) {
    return static_cast<T>(v / static_cast<T>(divisor));
  }
  static constexpr double kFactor = 3;
};

struct Boolean {
  using Value = bool;
  static Value load(const std::byte* p) { return *p != std::byte{0}; }
  static void store(std::byte* p, Value v) { *p = std::byte{v}; }
  static Value apply(ReduceOp op, Value a, Value b) {
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kMax:
      case ReduceOp::kBitOr:
        return a || b;
      case ReduceOp::kBitXor:
        return a != b;
      default:
        return a && b;
    }
  }
  static Value scale(Value v, double) { return v; }
  static constexpr double kFactor = 1;
};

template <typename T>
struct Float {
  using Value = T;
  static Value load(const std::byte* p) { return load_as<T>(p); }
  static void store(std::byte* p, Value v) { store_as(p, v); }
  static Value apply(ReduceOp op, Value a, Value b) { return float_op(op, a, b); }
  static Value scale(Value v, double factor) { return v * static_cast<T>(factor); }
  static constexpr double kFactor = 1.0 / 3;
};

template <typename T>
struct Complex {
  using Value = std::complex<T>;
  static Value load(const std::byte* p) { return {load_as<T>(p), load_as<T>(p + sizeof(T))}; }
  static void store(std::byte* p, Value v) {
    store_as(p, v.real());
    store_as(p + sizeof(T), v.imag());
  }
  static Value apply(ReduceOp op, Value a, Value b) {
    if (op != ReduceOp::kProduct) return {a.real() + b.real(), a.imag() + b.imag()};
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  }
  static Value scale(Value v, double factor) {
    return {v.real() * static_cast<T>(factor), v.imag() * static_cast<T>(factor)};
  }
  static constexpr double kFactor = 1.0 / 3;
};

// A float of kExponent and kMantissa bits, by the textbook: values through ldexp, rounding by looking for the nearest
// among all values.
template <typename Bits, int kExponent, int kMantissa, bool kHasInfinity>
struct Narrow {
  using Value = float;
  static constexpr uint32_t kSign = 1u << (kExponent + kMantissa);
  static constexpr uint32_t kAllOnes = ((1u << kExponent) - 1) << kMantissa;
  static constexpr uint32_t kFirstSpecial = kHasInfinity ? kAllOnes : kSign - 1;
  static constexpr uint32_t kNan = kSign - 1;
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;

  static float magnitude(uint32_t pattern) {
    const int exponent = static_cast<int>(pattern >> kMantissa);
    const int mantissa = static_cast<int>(pattern & ((1u << kMantissa) - 1));
    return exponent == 0 ? std::ldexp(static_cast<float>(mantissa), 1 - kBias - kMantissa)
                         : std::ldexp(static_cast<float>(mantissa + (1 << kMantissa)),
                                      exponent - kBias - kMantissa);
  }
  static const std::vector<float>& magnitudes() {
    static const std::vector<float> all = [] {
      std::vector<float> values;
      for (uint32_t pattern = 0; pattern < kFirstSpecial; ++pattern)
        values.push_back(magnitude(pattern));
      return values;
    }();
    return all;
  }

  static Value load(const std::byte* p) {
    const uint32_t bits = load_as<Bits>(p);
    const uint32_t pattern = bits & (kSign - 1);
    float value = std::numeric_limits<float>::quiet_NaN();
    if (pattern < kFirstSpecial) value = magnitudes()[pattern];
    if (kHasInfinity && pattern == kFirstSpecial) value = std::numeric_limits<float>::infinity();
    return (bits & kSign) != 0 ? -value : value;
  }
  static uint32_t nearest(double value) {
    const std::vector<float>& all = magnitudes();
    const auto above =
        static_cast<uint32_t>(std::lower_bound(all.begin(), all.end(), value) - all.begin());
    if (above == 0) return 0;
    // The neighbour above the largest: where the format would go on if it had more exponents.
    const double upper = above < all.size() ? double{all[above]}
                                            : 2 * double{all[above - 1]} - double{all[above - 2]};
    const double lower = all[above - 1];
    const double to_lower = value - lower, to_upper = upper - value;
    const bool take_lower = to_lower < to_upper || (to_lower == to_upper && (above - 1) % 2 == 0);
    if (above == all.size() && !kHasInfinity) return above - 1;
    return take_lower ? above - 1 : above;
  }
  static void store(std::byte* p, Value v) {
    const uint32_t pattern = std::isnan(v) ? kNan : nearest(std::fabs(v));
    store_as(p, static_cast<Bits>(pattern | (std::signbit(v) ? kSign : 0)));
  }
  static Value apply(ReduceOp op, Value a, Value b) { return float_op(op, a, b); }
  static Value scale(Value v, double factor) { return v * static_cast<float>(factor); }
  static constexpr double kFactor = 1.0 / 3;
};

using Float16 = Narrow<uint16_t, 5, 10, true>;
using BFloat16 = Narrow<uint16_t, 8, 7, true>;
using Float8E4M3FN = Narrow<uint8_t, 4, 3, false>;
using Float8E5M2 = Narrow<uint8_t, 5, 2, true>;

template <class Type>
void reference_many(ReduceOp op, std::byte* dst, const std::vector<const std::byte*>& sources,
                    size_t elements, size_t size) {
  for (size_t i = 0; i < elements; ++i) {
    auto value = Type::load(sources[0] + i * size);
    for (size_t s = 1; s < sources.size(); ++s)
      value = Type::apply(op, value, Type::load(sources[s] + i * size));
    Type::store(dst + i * size, value);
  }
}

template <class Type>
void reference_scale(std::byte* dst, const std::byte* src, size_t elements, size_t size) {
  for (size_t i = 0; i < elements; ++i) {
    Type::store(dst + i * size, Type::scale(Type::load(src + i * size), Type::kFactor));
  }
}

// NaNs are equal whatever their payload and sign.
template <class Type>
bool same(const std::byte* a, const std::byte* b, size_t size) {
  if (std::memcmp(a, b, size) == 0) return true;
  if constexpr (std::is_floating_point_v<typename Type::Value>) {
    return std::isnan(Type::load(a)) && std::isnan(Type::load(b));
  } else {
    return false;
  }
}
template <typename T>
bool same_complex(const std::byte* a, const std::byte* b) {
  return same<Float<T>>(a, b, sizeof(T)) && same<Float<T>>(a + sizeof(T), b + sizeof(T), sizeof(T));
}
template <>
bool same<Complex<float>>(const std::byte* a, const std::byte* b, size_t) {
  return same_complex<float>(a, b);
}
template <>
bool same<Complex<double>>(const std::byte* a, const std::byte* b, size_t) {
  return same_complex<double>(a, b);
}

struct Reference {
  void (*many)(ReduceOp, std::byte*, const std::vector<const std::byte*>&, size_t, size_t);
  void (*scale)(std::byte*, const std::byte*, size_t, size_t);
  bool (*same)(const std::byte*, const std::byte*, size_t);
  double factor;
  size_t float_bytes;  // of a real part; 0 for integers
};

template <class Type>
constexpr Reference reference(size_t float_bytes) {
  return {reference_many<Type>, reference_scale<Type>, same<Type>, Type::kFactor, float_bytes};
}

// Indexed by DataType.
constexpr Reference kReferences[kDataTypes] = {
    reference<Float<float>>(4),      reference<Float<double>>(8),
    reference<Float16>(2),           reference<BFloat16>(2),
    reference<Float8E4M3FN>(1),      reference<Float8E5M2>(1),
    reference<Integer<int8_t>>(0),   reference<Integer<int16_t>>(0),
    reference<Integer<int32_t>>(0),  reference<Integer<int64_t>>(0),
    reference<Integer<uint8_t>>(0),  reference<Integer<uint16_t>>(0),
    reference<Integer<uint32_t>>(0), reference<Integer<uint64_t>>(0),
    reference<Boolean>(0),           reference<Complex<float>>(4),
    reference<Complex<double>>(8),
};

// ---- The tests. ----

std::vector<int64_t> targets() {
  std::vector<int64_t> result;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) result.push_back(target);
  return result;
}

void use_target(int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

DataType type_at(int i) { return static_cast<DataType>(i); }
ReduceOp op_at(int i) { return static_cast<ReduceOp>(i); }

// Half of the elements are any bits at all (for floats: NaN, infinities, subnormals too), half are ordinary: small
// integers, and floats between 1/4 and 4 whose sums must be rounded.
Bytes random_bytes(DataType type, size_t elements, size_t shift, std::mt19937& random) {
  const size_t size = size_of(type),
               float_bytes = kReferences[static_cast<size_t>(type)].float_bytes;
  Bytes bytes(elements * size + shift);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const size_t part = float_bytes == 0 ? size : float_bytes;
  for (size_t at = shift; at + part <= bytes.size(); at += part) {
    const auto kind = random() % 16;
    if (kind < 8) continue;
    if (float_bytes == 0) {
      std::fill(bytes.begin() + static_cast<long>(at) + 1,
                bytes.begin() + static_cast<long>(at + part), std::byte{0});
      bytes[at] = static_cast<std::byte>(random() % 5);
    } else if (kind == 15) {
      std::fill(bytes.begin() + static_cast<long>(at), bytes.begin() + static_cast<long>(at + part),
                std::byte{0});
      bytes[at + part - 1] = random() % 2 == 0 ? std::byte{0x80} : std::byte{0};  // 0 or -0
    } else {
      // Clear all but the exponent's lowest bit, set its upper ones below the highest: a number near 1.
      auto& top = bytes[at + part - 1];
      top = (top & std::byte{0x87}) | std::byte{0x38};
      if (part == 4 || (part == 2 && type == DataType::kBFloat16))
        top = (top & std::byte{0x80}) | std::byte{0x3f};
      if (part == 8)
        top = (top & std::byte{0x80}) | std::byte{0x3f}, bytes[at + 6] |= std::byte{0xe0};
    }
  }
  return bytes;
}

class Reduce : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { use_target(GetParam()); }
  void TearDown() override { use_target(0); }
};

void expect_same(DataType type, ReduceOp op, const std::byte* actual, const std::byte* expected,
                 size_t elements, const std::string& what) {
  const Reference& ref = kReferences[static_cast<size_t>(type)];
  const size_t size = size_of(type);
  for (size_t i = 0; i < elements; ++i) {
    if (ref.same(actual + i * size, expected + i * size, size)) continue;
    std::string bits[2];
    for (size_t b = size; b-- > 0;) {
      for (int side = 0; side < 2; ++side) {
        char text[3];
        std::snprintf(text, sizeof(text), "%02x",
                      static_cast<unsigned>((side == 0 ? actual : expected)[i * size + b]));
        bits[side] += text;
      }
    }
    FAIL() << reduction_target() << " " << name(type) << " " << name(op) << " " << what
           << ", element " << i << " of " << elements << ": " << bits[0] << ", expected "
           << bits[1];
  }
}

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

TEST_P(Reduce, ScalesLikeTheReference) {
  std::mt19937 random(3);
  for_each_reduction([&](DataType type, ReduceOp op, const Reduction& r) {
    if (r.scale == nullptr) return;
    const Reference& ref = kReferences[static_cast<size_t>(type)];
    const size_t size = size_of(type);
    for (const size_t n : kSizes) {
      Bytes src = random_bytes(type, n, 1, random);
      Bytes expected(n * size), dst(n * size);
      ref.scale(expected.data(), src.data() + 1, n, size);
      r.scale(dst.data(), src.data() + 1, n, ref.factor);
      expect_same(type, op, dst.data(), expected.data(), n, "scaled");
      r.scale(src.data() + 1, src.data() + 1, n, ref.factor);
      expect_same(type, op, src.data() + 1, expected.data(), n, "scaled in place");
    }
  });
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
    reduction(type, ReduceOp::kAvg).scale(dst.data(), all.data(), patterns, factor);
    reduction(type, ReduceOp::kAvg).scale(partner.data(), dst.data(), patterns, 1.0);
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
    const auto scales = [&](ReduceOp op) { return reduction(type, op).scale != nullptr; };
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

}  // namespace
}  // namespace hccl_like
