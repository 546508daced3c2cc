#include "device/reduce/reduce.h"

#include <array>
#include <bit>

#include "device/reduce/families.h"

namespace hccl_like {
namespace {

using Family = Reduction (*)(DataType, ReduceOp) noexcept;

constexpr std::array<Family, kDataTypes> kFamilies{
    families::full_float,   families::full_float,    // float32, float64
    families::narrow_float, families::narrow_float,  // float16, bfloat16
    families::narrow_float, families::narrow_float,  // float8_e4m3fn, float8_e5m2
    families::integer,      families::integer,       // int8, int16
    families::integer,      families::integer,       // int32, int64
    families::integer,      families::integer,       // uint8, uint16
    families::integer,      families::integer,       // uint32, uint64
    families::boolean,                               // bool
    families::complex,      families::complex,       // complex64, complex128
};

using Row = std::array<Reduction, kReduceOps>;

// Cached: a lookup takes as long as a sum of a few numbers.
std::array<Row, kDataTypes> look_all_up() noexcept {
  std::array<Row, kDataTypes> found;
  for (size_t type = 0; type < found.size(); ++type)
    for (size_t op = 0; op < found[type].size(); ++op)
      found[type][op] = kFamilies[type](static_cast<DataType>(type), static_cast<ReduceOp>(op));
  return found;
}

}  // namespace

const Reduction& reduction(DataType type, ReduceOp op) noexcept {
  static const std::array<Row, kDataTypes> found = look_all_up();
  return found[static_cast<size_t>(type)][static_cast<size_t>(op)];
}

Scaling scaling(DataType type, ReduceOp op, int ranks, double factor) noexcept {
  if (op == ReduceOp::kPreMulSum) return {.input = factor};
  if (op != ReduceOp::kAvg) return {};
  if (is_integer(type)) return {.result = static_cast<double>(ranks)};
  const double power = std::bit_ceil(static_cast<unsigned>(ranks));
  return {.input = 1 / power, .result = 1.0 / ranks * power};
}

}  // namespace hccl_like
