#include "collectives/algorithms/all.h"

namespace hccl_like {

// In round k each rank tells the rank 2^k after it that it has come this far, and waits to be told
// by the rank 2^k before it; after log2(size) rounds, rounded up, everybody has heard of everybody.
// A message without bytes is still a message.
//
// D. Hensgen, R. Finkel, U. Manber: Two Algorithms for Barrier Synchronization, IJPP 17(1), 1988.
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
