#pragma once
// Measures this machine's memory bandwidth with the plain loops of move.h, at sizes that stay in a
// cache and at one that does not.
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "bench/cpp/shared_barrier.h"

namespace hccl_like::bench {

struct Level {
  const char* name;
  size_t bytes;  // that a core touches, of all operands together
};
// Half of the second-level cache, a quarter of the third, and four times the third.
std::array<Level, 3> levels();

struct Bandwidth {
  std::string loop;  // "a += b"
  std::string level;
  double one = 0;  // GB/s of one operand on one core, while the others wait
  double all = 0;  // on all ranks' cores at once, together
};

// Every rank calls it, pinned to a core of its own; each gets what it measured on its own core
// (`all` too).
std::vector<Bandwidth> measure_bandwidths(SharedBarrier& barrier, int rank, int ranks);

// Comment lines for above the rows.
std::string to_string(const std::vector<Bandwidth>& found);

}  // namespace hccl_like::bench
