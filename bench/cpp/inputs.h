#pragma once
// Inputs whose reduction is exact in every order of summation, so that a result is either right or
// wrong.
//
// A value depends on the rank, the position and a salt. It repeats with a prime period, so that a
// chunk put in the wrong place is noticed, and another salt gives other values, so that a stale
// result is noticed.
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/types.h"

namespace hccl_like::bench {

inline constexpr double kFactor = 2.0;  // of mulsum

// Fills `into` with what `rank` of `ranks` contributes; its size is a multiple of the element's.
void fill(std::span<std::byte> into, DataType type, ReduceOp op, int rank, int ranks, int salt);

// Fills `into` with elements [first, ...) of what all ranks' contributions reduce to.
void fill_reduced(std::span<std::byte> into, DataType type, ReduceOp op, int ranks, int salt,
                  size_t first = 0);
// The same for elements [first, ...) of one rank's contribution.
void fill_from(std::span<std::byte> into, DataType type, ReduceOp op, int rank, int ranks, int salt,
               size_t first);

// How many elements differ. `averaged`: floats may be one rounding off, because an average over a
// number of ranks that is no power of two may be a multiplication by 1/ranks.
size_t count_wrong(std::span<const std::byte> got, std::span<const std::byte> expected,
                   DataType type, bool averaged);

}  // namespace hccl_like::bench
