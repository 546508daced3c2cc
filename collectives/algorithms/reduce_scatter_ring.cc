#include "collectives/algorithms/all.h"

namespace hccl_like {

// Chunk c starts at rank c + 1, travels round the ring, is summed on the way and ends at rank c. No
// byte travels twice and a rank only talks to its neighbours.
//
// P. Patarasuk, X. Yuan: Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations,
// JPDC 69(2), 2009 (its first half).
//
// Order of summation: chunk c along the ring from rank c + 1 to rank c. 8- and 16-bit floats are
// rounded in every round.
//
// Rank 0 of 3:
//   0: send in[2]->1  recv_reduce in[1]+<-2 to scratch[0]
//   1: send scratch[0]->1  recv_reduce in[0]+<-2 to out[0]
Schedule reduce_scatter_ring(int rank, int size) {
  Schedule s(/*chunks=*/size);
  if (size == 1) s.round(copy(in(0), out(0)));
  const int next = (rank + 1) % size, prev = (rank + size - 1) % size;
  auto chunk = [&](int i) { return (rank - 1 - i + 2 * size) % size; };
  Slot sum = in(chunk(0));
  for (int i = 1; i < size; ++i) {
    // A slot for each chunk, as their sizes may differ.
    const Slot into = i == size - 1 ? out(rank) : s.add_scratch(in(chunk(i)));
    s.round(send(next, sum), recv_reduce(prev, in(chunk(i)), into));
    sum = into;
  }
  return s;
}

}  // namespace hccl_like
