#pragma once
// The proof that a job does what its collective promises: all ranks run, round by round, on values
// that cannot come out right by accident.
#include <functional>
#include <string>
#include <vector>

#include "collectives/verify/job.h"

namespace hccl_like {

enum class Memory { kSeparate, kInPlace };  // of in(c) and out(c)

// Each rank's chunk is a random 64-bit number and reductions add modulo 2^64: an output is right
// only if it holds each contribution exactly once, and memory that nobody has written holds numbers
// that spoil every sum. Says what is wrong,
// "" if nothing is. The job must have passed check(), so that the order of steps within a round
// cannot matter.
std::string prove(const Job& job, Memory memory);

// The outputs, by rank and chunk, of a job that adds float32 numbers; what a rank does not write
// stays 0. Shows in which order an algorithm adds, and that its ranks agree to the last bit.
std::vector<std::vector<float>> run_on_floats(
    const Job& job, const std::function<float(int rank, int chunk)>& input);

}  // namespace hccl_like
