#include "collectives/algorithms/all.h"
#include "collectives/algorithms/parts.h"

namespace hccl_like {

// Reduce-scatter and allgather, one round each: every rank sends chunk p to rank p, sums its own
// chunk and sends the sum to all peers. Ring traffic, two rounds, a message to every peer.
// Paper: Rabenseifner, Optimization of Collective Reduction Operations, ICCS 2004.
// Order of summation: rank 0, 1, 2, ... with one rounding for 8- and 16-bit floats. One rank sums
// each chunk, so results are bitwise equal on all ranks.
//
// Rank 1 of 3:
//   0: send in[2]->2  send in[0]->0  recv scratch[0]<-0  recv scratch[1]<-2
//   1: reduce scratch[0]+in[1]+scratch[1] to out[1]
//   2: send out[1]->2  recv out[0]<-0  send out[1]->0  recv out[2]<-2
Schedule allreduce_direct(int rank, int size) {
  Schedule s(/*chunks=*/size);
  append_direct_reduction(s, rank, size, out(rank));
  s.begin_round();
  for (int i = 1; i < size; ++i) {
    const int to = (rank + i) % size, from = (rank + size - i) % size;
    s.add(send(to, out(rank)));
    s.add(recv(from, out(from)));
  }
  return s;
}

}  // namespace hccl_like
