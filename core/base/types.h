#pragma once
// Element types and reductions, the same sets as in torch.
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hccl_like {

enum class DataType : uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kFloat8E4M3FN,  // OFP8: no infinities, one NaN pattern per sign
  kFloat8E5M2,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kBool,  // one byte, 0 or 1
  kComplex64,
  kComplex128,
};
inline constexpr int kDataTypes = 17;

enum class ReduceOp : uint8_t {
  kSum,      // bool: logical or
  kAvg,      // overflows only if the average does; integers: sum, divided, truncated towards zero
  kProduct,  // bool: logical and
  kMin,      // propagates NaN, as in torch
  kMax,
  kBitAnd,
  kBitOr,
  kBitXor,
  kPreMulSum,  // every input is multiplied by a factor first
};
inline constexpr int kReduceOps = 9;

size_t size_of(DataType type) noexcept;
// The eight integer types, without bool.
bool is_integer(DataType type) noexcept;
// torch's name without the prefix, e.g. "float32".
std::string_view name(DataType type) noexcept;
// "sum", "premul_sum", ...
std::string_view name(ReduceOp op) noexcept;

}  // namespace hccl_like
