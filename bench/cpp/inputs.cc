#include "bench/cpp/inputs.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace hccl_like::bench {
namespace {

constexpr int64_t kPeriod = 1021;

// Every integer from 0 to this is exact in the type.
int64_t exact_range(DataType type) {
  switch (type) {
    case DataType::kBool:
      return 1;
    case DataType::kFloat8E5M2:
      return 8;
    case DataType::kFloat8E4M3FN:
      return 16;
    case DataType::kInt8:
    case DataType::kUInt8:
      return 127;
    case DataType::kBFloat16:
      return 256;
    case DataType::kFloat16:
      return 2048;
    case DataType::kInt16:
    case DataType::kUInt16:
      return (1 << 15) - 1;
    default:
      return 1 << 24;
  }
}

bool is_complex(DataType type) {
  return type == DataType::kComplex64 || type == DataType::kComplex128;
}

// A sum that is a multiple of `ranks`: all add the same, then neighbours in pairs add and take
// away one.
int64_t averaged(int64_t share, int64_t at, int rank, int ranks) {
  if (share <= 1) return std::min<int64_t>(share, 1);
  const int64_t base = 1 + at % std::min<int64_t>(share - 1, 100);
  const bool odd_one_out = ranks % 2 == 1 && rank == ranks - 1;
  return odd_one_out ? base : base + (rank % 2 ? 1 : -1);
}

// The contribution of `rank` at a position of the pattern: a small integer. Every intermediate
// result stays in the exact range of the type.
int64_t contribution(DataType type, ReduceOp op, int rank, int ranks, int64_t at) {
  const int64_t range = exact_range(type);
  if (type == DataType::kBool) {
    // Mostly true for a product (and), mostly false otherwise, or large groups would give
    // constants.
    const bool marked = (at * 7 + rank) % (3 * ranks) == 0;
    return op == ReduceOp::kProduct || op == ReduceOp::kMin || op == ReduceOp::kBitAnd ? !marked
                                                                                       : marked;
  }
  switch (op) {
    case ReduceOp::kProduct:
      return (at + rank) % ranks < 3 ? 2 : 1;  // at most three twos
    case ReduceOp::kMin:
    case ReduceOp::kMax:
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      return (at * 5 + rank * 3) % (std::min<int64_t>(range, 100) + 1);
    case ReduceOp::kAvg:
      return averaged(range / ranks, at, rank, ranks);
    case ReduceOp::kSum:
    case ReduceOp::kPreMulSum:
      break;
  }
  const int64_t usable = op == ReduceOp::kPreMulSum ? range / static_cast<int64_t>(kFactor) : range;
  const int64_t share = usable / ranks;
  if (share == 0)
    return (at + rank) % ranks < usable;  // only so many ranks add a one at each position
  return (at * 7 + rank * 11) % (std::min<int64_t>(share, 100) + 1);
}

int64_t combine(DataType type, ReduceOp op, int64_t a, int64_t b) {
  if (type == DataType::kBool && (op == ReduceOp::kSum || op == ReduceOp::kMax)) return a | b;
  switch (op) {
    case ReduceOp::kProduct:
      return a * b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kBitAnd:
      return a & b;
    case ReduceOp::kBitOr:
      return a | b;
    case ReduceOp::kBitXor:
      return a ^ b;
    default:
      return a + b;
  }
}

int64_t reduced(DataType type, ReduceOp op, int ranks, int64_t at) {
  int64_t total = contribution(type, op, 0, ranks, at);
  for (int rank = 1; rank < ranks; ++rank)
    total = combine(type, op, total, contribution(type, op, rank, ranks, at));
  if (op == ReduceOp::kAvg) return total / ranks;
  return op == ReduceOp::kPreMulSum ? total * static_cast<int64_t>(kFactor) : total;
}

// The bits of a small integer in a float with so many bits of exponent and mantissa; exact by the
// choice of values.
uint16_t narrow_bits(int64_t value, int exponent_bits, int mantissa_bits) {
  if (value == 0) return 0;
  const int exponent = static_cast<int>(std::bit_width(static_cast<uint64_t>(value))) - 1;
  const int64_t fraction = value - (int64_t{1} << exponent);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int64_t mantissa = exponent <= mantissa_bits ? fraction << (mantissa_bits - exponent)
                                                     : fraction >> (exponent - mantissa_bits);
  return static_cast<uint16_t>(((exponent + bias) << mantissa_bits) | mantissa);
}

template <class T>
void put(std::vector<std::byte>& into, T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  into.insert(into.end(), bytes, bytes + sizeof value);
}

void encode(std::vector<std::byte>& into, DataType type, int64_t value, int64_t imaginary) {
  switch (type) {
    case DataType::kFloat32:
      return put(into, static_cast<float>(value));
    case DataType::kFloat64:
      return put(into, static_cast<double>(value));
    case DataType::kFloat16:
      return put(into, narrow_bits(value, 5, 10));
    case DataType::kBFloat16:
      return put(into, narrow_bits(value, 8, 7));
    case DataType::kFloat8E4M3FN:
      return put(into, static_cast<uint8_t>(narrow_bits(value, 4, 3)));
    case DataType::kFloat8E5M2:
      return put(into, static_cast<uint8_t>(narrow_bits(value, 5, 2)));
    case DataType::kComplex64:
      put(into, static_cast<float>(value));
      return put(into, static_cast<float>(imaginary));
    case DataType::kComplex128:
      put(into, static_cast<double>(value));
      return put(into, static_cast<double>(imaginary));
    default: {
      const auto* bytes =
          reinterpret_cast<const std::byte*>(&value);  // little endian, as every supported host is
      into.insert(into.end(), bytes, bytes + size_of(type));
    }
  }
}

// One period of encoded elements, repeated over `into` from element `first` of the endless pattern
// on.
template <class Value>
void tile(std::span<std::byte> into, DataType type, ReduceOp op, int salt, size_t first,
          Value value) {
  std::vector<std::byte> period;
  for (int64_t i = 0; i < kPeriod; ++i) {
    const bool real = is_complex(type) && op == ReduceOp::kProduct;
    encode(period, type, value(i + 31 * salt), real ? 0 : value(kPeriod - 1 - i + 31 * salt));
  }
  size_t from = first * size_of(type) % period.size();
  for (size_t at = 0; at < into.size(); from = 0) {
    const size_t length = std::min(period.size() - from, into.size() - at);
    std::memcpy(into.data() + at, period.data() + from, length);
    at += length;
  }
}

template <class T>
size_t differing(std::span<const std::byte> got, std::span<const std::byte> expected, size_t parts,
                 T slack) {
  size_t wrong = 0;
  for (size_t at = 0; at < got.size(); at += parts * sizeof(T)) {
    bool same = true;
    for (size_t part = 0; part < parts; ++part) {
      T a, b;
      std::memcpy(&a, got.data() + at + part * sizeof(T), sizeof(T));
      std::memcpy(&b, expected.data() + at + part * sizeof(T), sizeof(T));
      same &= static_cast<T>(std::max(a, b) - std::min(a, b)) <= slack;
    }
    wrong += !same;
  }
  return wrong;
}

}  // namespace

void fill_from(std::span<std::byte> into, DataType type, ReduceOp op, int rank, int ranks, int salt,
               size_t first) {
  tile(into, type, op, salt, first,
       [=](int64_t at) { return contribution(type, op, rank, ranks, at); });
}

void fill(std::span<std::byte> into, DataType type, ReduceOp op, int rank, int ranks, int salt) {
  fill_from(into, type, op, rank, ranks, salt, 0);
}

void fill_reduced(std::span<std::byte> into, DataType type, ReduceOp op, int ranks, int salt,
                  size_t first) {
  tile(into, type, op, salt, first, [=](int64_t at) { return reduced(type, op, ranks, at); });
}

size_t count_wrong(std::span<const std::byte> got, std::span<const std::byte> expected,
                   DataType type, bool averaged) {
  if (got.empty() || std::memcmp(got.data(), expected.data(), got.size()) == 0) return 0;
  const bool floats = !is_integer(type) && type != DataType::kBool;
  const uint8_t slack =
      averaged && floats ? 1 : 0;  // neighbouring floats are neighbouring bit patterns
  const size_t parts = is_complex(type) ? 2 : 1;
  switch (size_of(type) / parts) {
    case 1:
      return differing<uint8_t>(got, expected, parts, slack);
    case 2:
      return differing<uint16_t>(got, expected, parts, slack);
    case 4:
      return differing<uint32_t>(got, expected, parts, slack);
    default:
      return differing<uint64_t>(got, expected, parts, slack);
  }
}

}  // namespace hccl_like::bench
