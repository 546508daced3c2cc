#include "collectives/algorithms/all.h"

namespace hccl_like {

// Sums travel from the last rank towards the root; each rank adds its input. The engine's slices
// pipeline, so that every rank receives, adds and sends at once: for large payloads.
// Paper: Traeff, Ripke, Optimal Broadcast for Fully Connected ... Networks, JPDC 68(7), 2008.
// Order of summation: down the chain to the root. 8- and 16-bit floats are rounded each round.
//
// 3 ranks, root 0:
//   rank 0                                 rank 1                                   rank 2
//   0: idle                                recv_reduce in[0]+<-2 to scratch[0]      send in[0]->1
//   1: recv_reduce in[0]+<-1 to out[0]     send scratch[0]->0
Schedule reduce_chain(int rank, int size, int root) {
  Schedule s(/*chunks=*/1);
  const int me = (rank - root + size) % size;  // number counted from the root
  const int next = (rank + 1) % size, prev = (rank + size - 1) % size;
  if (size == 1) s.round(copy(in(0), out(0)));
  for (int i = 0; i < size - 2 - me; ++i) s.round();
  Slot sum = in(0);
  if (me < size - 1) {
    sum = me == 0 ? out(0) : s.add_scratch(in(0));
    s.round(recv_reduce(next, in(0), sum));
  }
  if (me > 0) s.round(send(prev, sum));
  return s;
}

}  // namespace hccl_like
