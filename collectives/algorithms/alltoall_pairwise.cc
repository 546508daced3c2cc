#include "collectives/algorithms/all.h"

namespace hccl_like {

// In round i each rank sends to the rank i after and receives from the rank i before: one message
// out and one in at any time. Only the two ends of a message need its size, so sizes may differ.
// Paper: Thakur et al., Optimization of Collective Communication Operations in MPICH, IJHPCA 2005.
//
// Rank 1 of 3:
//   0: send in[2]->2  recv out[0]<-0  copy in[1] to out[1]
//   1: send in[0]->0  recv out[2]<-2
Schedule alltoall_pairwise(int rank, int size) {
  Schedule s(/*chunks=*/size);
  if (size == 1) s.round(copy(in(0), out(0)));
  for (int i = 1; i < size; ++i) {
    const int to = (rank + i) % size, from = (rank + size - i) % size;
    s.round(send(to, in(to)), recv(from, out(from)));
    if (i == 1) s.add(copy(in(rank), out(rank)));
  }
  return s;
}

}  // namespace hccl_like
