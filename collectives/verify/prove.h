#pragma once
// Proves that a job fulfils its collective: runs all ranks, round by round, on random values.
#include <functional>
#include <string>
#include <vector>

#include "collectives/verify/job.h"

namespace hccl_like {

enum class Memory { kSeparate, kInPlace };  // of in(c) and out(c)

// Inputs are random 64-bit numbers and reductions add modulo 2^64: an output is right only if it
// has each contribution exactly once. Unwritten memory holds numbers that corrupt any sum. Returns
// the fault, or "".The job must have passed check().
std::string prove(const Job& job, Memory memory);

// The outputs, by rank and chunk, on float32 inputs; unwritten outputs are 0. Shows the order of
// summation and bitwise equality across ranks.
std::vector<std::vector<float>> run_on_floats(
    const Job& job, const std::function<float(int rank, int chunk)>& input);

// The outputs on numbers of the caller's, by rank and chunk. `value` is that of each input and
// output before the call; in place, out(c) is in(c).
std::vector<std::vector<uint64_t>> run_on_numbers(
    const Job& job, Memory memory, const std::function<uint64_t(int rank, Slot slot)>& value);

}  // namespace hccl_like
