#include "collectives/algorithms/all.h"

namespace hccl_like {

// All messages in one round, each rank beginning with its right neighbour. Nobody waits for
// anybody but the senders of its own chunks; with many ranks that is many messages on the way at
// once.
//
// R. Thakur, R. Rabenseifner, W. Gropp: Optimization of Collective Communication Operations in
// MPICH, IJHPCA 19(1), 2005 (isend-irecv algorithm).
//
// Rank 1 of 3:
//   0: send in[2]->2  recv out[0]<-0  send in[0]->0  recv out[2]<-2  copy in[1] to out[1]
Schedule alltoall_direct(int rank, int size) {
  Schedule s(/*chunks=*/size);
  s.begin_round();
  for (int i = 1; i < size; ++i) {
    const int to = (rank + i) % size, from = (rank + size - i) % size;
    s.add(send(to, in(to)));
    s.add(recv(from, out(from)));
  }
  s.add(copy(in(rank), out(rank)));
  return s;
}

}  // namespace hccl_like
