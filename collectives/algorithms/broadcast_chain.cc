#include "collectives/algorithms/all.h"

namespace hccl_like {

// Each rank forwards the data to the next. The engine's slices pipeline down the chain, so that
// every rank sends and receives at full rate: for large payloads. Paper: Traeff, Ripke, Optimal
// Broadcast for Fully Connected ... Networks, JPDC 68(7), 2008.
//
// 3 ranks, root 0:
//   rank 0                                  rank 1             rank 2
//   0: send in[0]->1  copy in[0] to out[0]  recv out[0]<-0     idle
//   1:                                      send out[0]->2     recv out[0]<-1
Schedule broadcast_chain(int rank, int size, int root) {
  Schedule s(/*chunks=*/1);
  const int me = (rank - root + size) % size;  // number counted from the root
  const int next = (rank + 1) % size, prev = (rank + size - 1) % size;
  for (int i = 0; i < me - 1; ++i) s.round();
  if (me > 0) s.round(recv(prev, out(0)));
  if (me < size - 1) s.round(send(next, me == 0 ? in(0) : out(0)));
  if (me == 0) s.add(copy(in(0), out(0)));
  return s;
}

}  // namespace hccl_like
