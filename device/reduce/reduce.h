#pragma once
// SIMD reductions on host memory (Highway, dispatched at run time).
#include <cstddef>
#include <span>

#include "core/base/types.h"

namespace hccl_like {

// dst[i] = a[i] op b[i] for `elements` elements. dst may equal a or b, without other overlap. Any
// alignment. 8- and 16-bit floats are widened to float32 and rounded once to nearest even.
using Combine = void (*)(std::byte* dst, const std::byte* a, const std::byte* b,
                         size_t elements) noexcept;

// dst[i] = also[i] = a[i] op b[i]. Each may equal a or b (not the same), no other overlap.
using CombineTwice = void (*)(std::byte* dst, std::byte* also, const std::byte* a,
                              const std::byte* b, size_t elements) noexcept;

// dst[i] = sources[0][i] op sources[1][i] op ..., left to right, rounded once at the end for 8- and
// 16-bit floats. dst may equal one source. At least one source.
using CombineMany = void (*)(std::byte* dst, std::span<const std::byte* const> sources,
                             size_t elements) noexcept;

// Factors of a reduction. An integer sum is divided by `result` and truncated towards zero.
struct Scaling {
  double input = 1;   // multiplies every input
  double result = 1;  // multiplies the sum of all inputs
  bool any() const noexcept { return input != 1 || result != 1; }
};

// The factors of kAvg and kPreMulSum (`factor`); 1 for every other operation.
//
// Float and complex averages: `input` is the largest power of two not above 1 / ranks, `result` the
// rest of 1 / ranks. So a sum overflows only if the average does. Powers of two are exact outside
// the subnormal range: the result is bitwise sum * (1 / ranks) unless that overflows or is near
// subnormal. Integer averages: the sum wraps around, then is divided.
Scaling scaling(DataType type, ReduceOp op, int ranks, double factor) noexcept;

// dst[i] = (sources[0][i] * input + sources[1][i] * input + ...) * result, in the order of
// CombineMany, rounded once. `also`: a second destination as in CombineTwice, or null.
using CombineScaled = void (*)(std::byte* dst, std::byte* also,
                               std::span<const std::byte* const> sources, size_t elements,
                               Scaling scaling) noexcept;

// Kernels of one (type, operation). The first three never scale: for kAvg and kPreMulSum they sum.
// Only these two operations have `combine_scaled`.
struct Reduction {
  Combine combine = nullptr;
  CombineTwice combine_twice = nullptr;
  CombineMany combine_many = nullptr;
  CombineScaled combine_scaled = nullptr;
  bool valid() const noexcept { return combine != nullptr; }

  // Combines the inputs of all ranks. `also`: a second destination, or null; without scaling
  // requires two inputs.
  void combine_all(std::byte* dst, std::byte* also, std::span<const std::byte* const> sources,
                   size_t elements, const Scaling& scaling) const noexcept {
    if (scaling.any()) return combine_scaled(dst, also, sources, elements, scaling);
    if (also != nullptr) return combine_twice(dst, also, sources[0], sources[1], elements);
    if (sources.size() == 2) return combine(dst, sources[0], sources[1], elements);
    combine_many(dst, sources, elements);
  }
  // Multiplies without combining. `dst` may be `from`.
  void scale(std::byte* dst, const std::byte* from, size_t elements,
             const Scaling& scaling) const noexcept {
    combine_scaled(dst, nullptr, {&from, 1}, elements, scaling);
  }
};

// Null members if torch does not define the operation: bit operations on floats and complex,
// min/max on complex, kAvg on bool, kPreMulSum on types other than floats and complex. Thread-safe;
// does not allocate.
const Reduction& reduction(DataType type, ReduceOp op) noexcept;

// Name of the instruction set in use, e.g. "AVX3_ZEN4".
const char* reduction_target() noexcept;

}  // namespace hccl_like
