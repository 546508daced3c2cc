#include "collectives/algorithms/all.h"
#include "collectives/algorithms/parts.h"

namespace hccl_like {

// Every rank sends chunk p to rank p, sums its own chunk and sends the sum to the root. All ranks
// share the additions; the payload moves less than twice, instead of log2(size) times as in a tree.
// Paper: Rabenseifner, Optimization of Collective Reduction Operations, ICCS 2004.
// Order of summation: rank 0, 1, 2, ... for any root, with one rounding for 8- and 16-bit floats.
//
// Rank 1 of 3, root 0:
//   0: send in[2]->2  send in[0]->0  recv scratch[1]<-0  recv scratch[2]<-2
//   1: reduce scratch[1]+in[1]+scratch[2] to scratch[0]
//   2: send scratch[0]->0
Schedule reduce_direct(int rank, int size, int root) {
  Schedule s(/*chunks=*/size);
  const Slot sum = rank == root ? out(rank) : s.add_scratch(in(rank));
  append_direct_reduction(s, rank, size, sum);
  s.begin_round();
  if (rank != root) s.add(send(root, sum));
  for (int peer = 0; peer < size && rank == root; ++peer) {
    if (peer != root) s.add(recv(peer, out(peer)));
  }
  return s;
}

}  // namespace hccl_like
