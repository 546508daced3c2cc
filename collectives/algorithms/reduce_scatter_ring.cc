#include "collectives/algorithms/all.h"

namespace hccl_like {

// Chunk c travels around the ring from rank c + 1 to rank c and is summed on the way. No byte
// travels twice, and a rank uses only its two neighbours.
// Paper: Patarasuk, Yuan, Bandwidth Optimal All-reduce Algorithms for Clusters, JPDC 69(2), 2009.
// Order of summation: chunk c from rank c + 1 to c. 8- and 16-bit floats are rounded each round.
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
    // One slot for each chunk: chunk sizes may differ.
    const Slot into = i == size - 1 ? out(rank) : s.add_scratch(in(chunk(i)));
    s.round(send(next, sum), recv_reduce(prev, in(chunk(i)), into));
    sum = into;
  }
  return s;
}

}  // namespace hccl_like
