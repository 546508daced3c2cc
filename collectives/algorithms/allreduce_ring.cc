#include "collectives/algorithms/all.h"

namespace hccl_like {

// Each chunk travels once around the ring to be summed, and once more as the result. A rank sends 2
// (size - 1) / size of the payload, the minimum, to one neighbour: for large payloads.
// Paper: Patarasuk, Yuan, Bandwidth Optimal All-reduce Algorithms for Clusters, JPDC 69(2), 2009.
// Order of summation: chunk c along the ring from rank c to rank c - 1. One rank finishes each
// chunk, so results are bitwise equal on all ranks. 8- and 16-bit floats are rounded each round.
//
// Rank 0 of 3:
//   0: send in[0]->1  recv_reduce in[2]+<-2 to out[2]
//   1: send out[2]->1  recv_reduce in[1]+<-2 to out[1]     chunk 1 is finished here
//   2: send out[1]->1  recv out[0]<-2
//   3: send out[0]->1  recv out[2]<-2
Schedule allreduce_ring(int rank, int size) {
  Schedule s(/*chunks=*/size);
  if (size == 1) s.round(copy(in(0), out(0)));
  const int next = (rank + 1) % size, prev = (rank + size - 1) % size;
  auto chunk = [&](int i) { return (rank - i + 2 * size) % size; };
  for (int i = 0; i < size - 1; ++i) {  // forward the last sum, add the arriving one
    s.round(send(next, i == 0 ? in(chunk(i)) : out(chunk(i))),
            recv_reduce(prev, in(chunk(i + 1)), out(chunk(i + 1))));
  }
  for (int i = -1; i < size - 2; ++i) {  // finished chunks travel once more
    s.round(send(next, out(chunk(i))), recv(prev, out(chunk(i + 1))));
  }
  return s;
}

}  // namespace hccl_like
