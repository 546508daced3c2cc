#include "collectives/algorithms/all.h"

namespace hccl_like {

// In round i each rank sends to the rank i after it and receives from the rank i before it, so that
// every rank sends one message and receives one at any time. A message is one chunk, and only the
// two ranks at its ends need to know its size: it serves chunks of any sizes.
//
// R. Thakur, R. Rabenseifner, W. Gropp: Optimization of Collective Communication Operations in
// MPICH, IJHPCA 19(1), 2005 (pairwise exchange).
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
