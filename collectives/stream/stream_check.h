#pragma once
// Proofs about the stream programs of all ranks. A fault is a sentence with ranks and steps; ""
// means none.
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/stream/stream_program.h"
#include "collectives/verify/prove.h"

namespace hccl_like {

// Proves with vector clocks (Fidge; Mattern, 1988): no cycle of waits; of two accesses to a chunk
// by different ranks, one of them a write, one happens before the other; nobody reads a rank's
// memory after that rank's program has ended; every wait has a signal, and every signal a wait; no
// other step concerns what a step beside the others copies.
std::string check_streams(const Job& job, const std::vector<StreamProgram>& programs,
                          Memory memory);

// Runs the programs on random 64-bit numbers and compares the outputs with those of the schedules.
// Ranks take turns at random; `seed` chooses the turns. With `dies` >= 0 that rank stops at a
// random step, and the words of all ranks are set to their largest value, as the watchdogs of
// survivors do: then every other rank must come to its end. replayable() programs run `runs` times,
// each rank at its own pace, and each run has other numbers.
std::string run_streams(const Job& job, const std::vector<StreamProgram>& programs, Memory memory,
                        uint64_t seed, int dies = -1, size_t runs = 1);

}  // namespace hccl_like
