#include "core/base/types.h"

#include <array>

namespace hccl_like {
namespace {

struct TypeInfo {
  size_t size;
  std::string_view name;
};

constexpr std::array<TypeInfo, kDataTypes> kTypes{{
    {4, "float32"},
    {8, "float64"},
    {2, "float16"},
    {2, "bfloat16"},
    {1, "float8_e4m3fn"},
    {1, "float8_e5m2"},
    {1, "int8"},
    {2, "int16"},
    {4, "int32"},
    {8, "int64"},
    {1, "uint8"},
    {2, "uint16"},
    {4, "uint32"},
    {8, "uint64"},
    {1, "bool"},
    {8, "complex64"},
    {16, "complex128"},
}};

constexpr std::array<std::string_view, kReduceOps> kOps{
    "sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"};

}  // namespace

size_t size_of(DataType type) noexcept { return kTypes[static_cast<size_t>(type)].size; }
bool is_integer(DataType type) noexcept {
  return type >= DataType::kInt8 && type <= DataType::kUInt64;
}
std::string_view name(DataType type) noexcept { return kTypes[static_cast<size_t>(type)].name; }
std::string_view name(ReduceOp op) noexcept { return kOps[static_cast<size_t>(op)]; }

}  // namespace hccl_like
