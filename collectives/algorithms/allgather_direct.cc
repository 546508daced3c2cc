#include "collectives/algorithms/all.h"

namespace hccl_like {

// Every rank sends its chunk to every peer in one round, its right neighbour first.
// Paper: Bruck et al., Efficient Algorithms for All-to-All Communications, IEEE TPDS 8(11), 1997.
//
// Rank 1 of 3:
//   0: send in[1]->2  recv out[0]<-0  send in[1]->0  recv out[2]<-2  copy in[1] to out[1]
Schedule allgather_direct(int rank, int size) {
  Schedule s(/*chunks=*/size);
  s.begin_round();
  for (int i = 1; i < size; ++i) {
    const int to = (rank + i) % size, from = (rank + size - i) % size;
    s.add(send(to, in(rank)));
    s.add(recv(from, out(from)));
  }
  s.add(copy(in(rank), out(rank)));
  return s;
}

}  // namespace hccl_like
