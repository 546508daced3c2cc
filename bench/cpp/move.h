#pragma once
// The plainest way to move and add memory: what the floor and the bandwidths are measured with. Not
// what the collectives use, so that a slow kernel there is seen and not made the measure of itself.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hccl_like::bench {

// Every destination becomes the sum of the sources, as floats; a plain copy if there is one source.
// A destination may be a source exactly, but overlaps none otherwise.
struct Move {
  std::vector<std::byte*> into;
  std::vector<const std::byte*> from;
  size_t bytes = 0;  // a multiple of four, as all addresses are

  bool copies() const { return from.size() == 1; }
};

// `streaming`: copies go round the caches on their way out (where the processor can).
void run(const Move& move, bool streaming);

// Reads everything; the sum of it, so that nobody can leave the reading out.
float read(std::span<const std::byte> bytes);
// Writes everything with plain stores. A library's memset may go round the caches when there is
// much to write.
void overwrite(std::span<std::byte> bytes, uint32_t pattern);

}  // namespace hccl_like::bench
