#include "collectives/algorithms/all.h"

namespace hccl_like {

// Every chunk travels once around the ring: each rank forwards the chunk of the previous round to
// the same neighbour. For large payloads and slow links.
// Paper: Chan et al., Collective Communication: Theory, Practice, and Experience, CCPE 2007.
//
// Rank 0 of 3:
//   0: send in[0]->1  recv out[2]<-2  copy in[0] to out[0]
//   1: send out[2]->1  recv out[1]<-2
Schedule allgather_ring(int rank, int size) {
  Schedule s(/*chunks=*/size);
  if (size == 1) s.round(copy(in(0), out(0)));
  const int next = (rank + 1) % size, prev = (rank + size - 1) % size;
  auto chunk = [&](int i) { return (rank - i + size) % size; };
  for (int i = 0; i < size - 1; ++i) {
    s.round(send(next, i == 0 ? in(rank) : out(chunk(i))), recv(prev, out(chunk(i + 1))));
    if (i == 0) s.add(copy(in(rank), out(rank)));
  }
  return s;
}

}  // namespace hccl_like
