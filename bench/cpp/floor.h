#pragma once
// The least time of a collective: the bytes that must move, moved by plain loops on the ranks'
// cores at once, with nothing between them. Measured on the row's own sizes and in the state in
// which the operation finds its data (dirty: fresh from the caches of whoever owns it), so it needs
// no guess about which cache that is.
//
// Data movement of each collective. All n ranks map every rank's memory, a share is size / n, and
// all cores do an even part:
//   all_reduce      rank r adds share r of all inputs and writes it into all outputs:
//                   reads and writes the size once
//                   (2 ranks in place: a = b = a + b over half of it)
//   reduce_scatter  rank r adds share r of all inputs into its output
//   reduce          the same into the root's output
//   broadcast       rank r copies share r of the root's buffer into all others'
//   all_gather      each rank copies all inputs into its output; in place, the others'
//   alltoall        each rank copies its share of each input
//   gather, scatter each rank copies one share; sendrecv: the whole
// The type does not count: adding is done as floats, as fast as memory allows.
#include <cstddef>
#include <vector>

#include "bench/cpp/collective.h"
#include "bench/cpp/move.h"
#include "bench/cpp/shared_barrier.h"

namespace hccl_like::bench {

// The buffers of one rank in the memory that all ranks have.
struct Seen {
  std::byte* send;
  std::byte* receive;
};

// The first byte of each rank's buffers of a row. `arena` holds 2 x ranks pieces of `piece` bytes.
std::vector<Seen> places(const Shape& shape, const Case& row, bool in_place, std::byte* arena,
                         size_t piece);

// The moves of row.rank.
std::vector<Move> moves(const Shape& shape, const Case& row, bool in_place,
                        const std::vector<Seen>& all);

class Floor {
 public:
  // Below this many bytes a collective takes the time of its messages and not of its bytes.
  static constexpr size_t kLeast = 4096;

  // Every rank has `arena` at the same address: it was mapped before the ranks were forked.
  // `crowded`: ranks share cores.
  Floor(SharedBarrier& barrier, std::byte* arena, size_t piece, bool crowded)
      : barrier_(barrier), arena_(arena), piece_(piece), crowded_(crowded) {}

  // Microseconds on this rank, the median of so many repeats, after others that are not timed: a
  // cache that just holds what moves takes some ten of them to do so. 0 if nothing that counts must
  // move. All ranks call it together.
  double measure(const Shape& shape, const Case& row, bool in_place, bool dirty, int untimed,
                 int repeats) const;

 private:
  SharedBarrier& barrier_;
  std::byte* arena_;
  size_t piece_;
  bool crowded_;
};

}  // namespace hccl_like::bench
