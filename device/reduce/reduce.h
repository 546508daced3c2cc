#pragma once
// Elementwise reductions on host memory, SIMD on whatever this processor has (Highway, dispatched at run time).
#include <cstddef>
#include <span>

#include "core/types.h"

namespace hccl_like {

// dst[i] = a[i] op b[i] for `elements` elements. dst may be a or b exactly, but must not overlap either otherwise.
// Any alignment. 8- and 16-bit floats are widened to float32 and rounded once (to nearest even).
using Combine = void (*)(std::byte* dst, const std::byte* a, const std::byte* b,
                         size_t elements) noexcept;

// dst[i] = also[i] = a[i] op b[i]: two places of one result, written while both are at hand. Each of dst and also may be a or b
// exactly, not both the same one; neither may overlap anything else. Of kAvg it divides, too.
using CombineTwice = void (*)(std::byte* dst, std::byte* also, const std::byte* a,
                              const std::byte* b, size_t elements) noexcept;

// dst[i] = sources[0][i] op sources[1][i] op ... in this order, left to right, with one rounding at the end for 8- and
// 16-bit floats. dst may be one of the sources exactly. At least one source.
using CombineMany = void (*)(std::byte* dst, std::span<const std::byte* const> sources,
                             size_t elements) noexcept;

// dst[i] = src[i] * factor (floats and complex), or src[i] / divisor truncated towards zero (integers, factor =
// 1 / divisor is not used). dst may be src exactly.
using Scale = void (*)(std::byte* dst, const std::byte* src, size_t elements,
                       double factor) noexcept;

// The kernels of one (type, operation). kAvg and kPreMulSum combine as kSum; what makes them different is `scale`,
// applied to the result (kAvg, factor = 1 / ranks; for integers factor = ranks and it divides) or to each input
// (kPreMulSum). Null where the operation needs none. `combine_twice` is null for averages of
// integers, which take a second pass.
struct Reduction {
  Combine combine = nullptr;
  CombineTwice combine_twice = nullptr;
  CombineMany combine_many = nullptr;
  Scale scale = nullptr;
  bool valid() const noexcept { return combine != nullptr; }
};

// Null members where torch does not define the operation: bit operations on floats and complex, min/max on complex,
// kAvg on bool, kPreMulSum on anything but floats and complex. Thread-safe, no allocation.
const Reduction& reduction(DataType type, ReduceOp op) noexcept;

// Name of the instruction set in use, e.g. "AVX3_ZEN4", for logs and the doctor.
const char* reduction_target() noexcept;

}  // namespace hccl_like
