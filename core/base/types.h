#pragma once
// The element types and reductions that every layer speaks of. The sets are torch's.
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
  kAvg,      // overflows only if the average does (integers: the sum, divided and truncated towards
             // zero)
  kProduct,  // bool: logical and
  kMin,      // NaN spreads, as in torch
  kMax,
  kBitAnd,
  kBitOr,
  kBitXor,
  kPreMulSum,  // every input is multiplied by a factor first
};
inline constexpr int kReduceOps = 9;

// Bytes of one element.
size_t size_of(DataType type) noexcept;
// True for the eight integer types; bool is none.
bool is_integer(DataType type) noexcept;
// "float32", as torch prints it without the prefix.
std::string_view name(DataType type) noexcept;
// "sum", "premul_sum", ...
std::string_view name(ReduceOp op) noexcept;

}  // namespace hccl_like
