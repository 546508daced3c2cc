#include "collectives/algorithms/all.h"

namespace hccl_like {

// In round k each rank signals the rank 2^k after and waits for the rank 2^k before. After
// ceil(log2(size)) rounds every rank has heard of every other. Messages carry no bytes.
// Paper: Hensgen, Finkel, Manber, Two Algorithms for Barrier Synchronization, IJPP 17(1), 1988.
//
// Rank 0 of 3:
//   0: send in[0]->1  recv out[0]<-2
//   1: send in[0]->2  recv out[0]<-1
Schedule barrier_dissemination(int rank, int size) {
  Schedule s(/*chunks=*/1);
  for (int bit = 1; bit < size; bit *= 2) {
    s.round(send((rank + bit) % size, in(0)), recv((rank + size - bit) % size, out(0)));
  }
  return s;
}

}  // namespace hccl_like
