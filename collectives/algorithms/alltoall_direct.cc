#include "collectives/algorithms/all.h"

namespace hccl_like {

// All messages in one round, each rank starting with its right neighbour. A rank waits only for the
// senders of its own chunks, at the price of many messages in flight.
// Paper: Thakur et al., Optimization of Collective Communication Operations in MPICH, IJHPCA 2005.
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
