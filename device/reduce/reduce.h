#pragma once
// Elementwise reductions on host memory, SIMD on whatever this processor has (Highway, dispatched
// at run time).
#include <cstddef>
#include <span>

#include "core/base/types.h"

namespace hccl_like {

// dst[i] = a[i] op b[i] for `elements` elements. dst may be a or b exactly, but must not overlap
// either otherwise. Any alignment. 8- and 16-bit floats are widened to float32 and rounded once (to
// nearest even).
using Combine = void (*)(std::byte* dst, const std::byte* a, const std::byte* b,
                         size_t elements) noexcept;

// dst[i] = also[i] = a[i] op b[i]: two places of one result, written while both are at hand. Each
// of dst and also may be a or b exactly, not both the same one; neither may overlap anything else.
using CombineTwice = void (*)(std::byte* dst, std::byte* also, const std::byte* a,
                              const std::byte* b, size_t elements) noexcept;

// dst[i] = sources[0][i] op sources[1][i] op ... in this order, left to right, with one rounding at
// the end for 8- and 16-bit floats. dst may be one of the sources exactly. At least one source.
using CombineMany = void (*)(std::byte* dst, std::span<const std::byte* const> sources,
                             size_t elements) noexcept;

// The factors of a reduction. A sum of integers is divided by `result`, and truncated towards zero.
struct Scaling {
  double input = 1;   // multiplies every input
  double result = 1;  // multiplies the sum of all inputs
  bool any() const noexcept { return input != 1 || result != 1; }
};

// The factors of kAvg and kPreMulSum; 1 for every other operation. `factor` belongs to kPreMulSum.
//
// Averages of floats and complex numbers: `input` is the largest power of two that is not above 1 /
// ranks, `result` is the rest of 1 / ranks. So a sum overflows only if the average does. A power of
// two changes no bit of a product that is not subnormal: the result is sum * (1 / ranks), to the
// last bit, unless that overflows or comes near the subnormal numbers. Averages of integers: the
// sum wraps around, then it is divided.
Scaling scaling(DataType type, ReduceOp op, int ranks, double factor) noexcept;

// dst[i] = (sources[0][i] * input + sources[1][i] * input + ...) * result, in the order of
// CombineMany and rounded once. `also` is a second place, as CombineTwice has, or null.
using CombineScaled = void (*)(std::byte* dst, std::byte* also,
                               std::span<const std::byte* const> sources, size_t elements,
                               Scaling scaling) noexcept;

// The kernels of one (type, operation). The first three never scale: for kAvg and kPreMulSum they
// add up. Only these two operations have `combine_scaled`.
struct Reduction {
  Combine combine = nullptr;
  CombineTwice combine_twice = nullptr;
  CombineMany combine_many = nullptr;
  CombineScaled combine_scaled = nullptr;
  bool valid() const noexcept { return combine != nullptr; }

  // Combines the inputs of all ranks. `also`: a second place for the result of two inputs, or null.
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

// Null members where torch does not define the operation: bit operations on floats and complex,
// min/max on complex, kAvg on bool, kPreMulSum on anything but floats and complex. Thread-safe, no
// allocation.
const Reduction& reduction(DataType type, ReduceOp op) noexcept;

// Name of the instruction set in use, e.g. "AVX3_ZEN4", for logs and the doctor.
const char* reduction_target() noexcept;

}  // namespace hccl_like
