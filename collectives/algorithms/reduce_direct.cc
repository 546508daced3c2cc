#include "collectives/algorithms/all.h"

namespace hccl_like {

// Every rank sends chunk p to rank p, adds up the chunk that is its own, and sends the sum to the root.
// The work of adding is shared by all ranks and the payload moves less than twice, where a tree moves
// it log2(size) times.
//
// R. Rabenseifner: Optimization of Collective Reduction Operations, ICCS 2004 (reduce-scatter and
// gather, there with recursive exchanges).
//
// Order of summation: rank 0, 1, 2, ... whatever the root, with one rounding for 8- and 16-bit floats.
//
// Rank 1 of 3, root 0:
//   0: send in[2]->2  send in[0]->0  recv scratch[0]<-0  recv scratch[1]<-2
//   1: reduce scratch[0]+in[1]+scratch[1] to scratch[2]
//   2: send scratch[2]->0
Schedule reduce_direct(int rank, int size, int root) {
  Schedule s(/*chunks=*/size);
  s.begin_round();
  for (int i = 1; i < size; ++i) s.add(send((rank + i) % size, in((rank + i) % size)));
  std::vector<Slot> inputs;
  for (int peer = 0; peer < size; ++peer) {
    inputs.push_back(peer == rank ? in(rank) : s.add_scratch(in(rank)));
    if (peer != rank) s.add(recv(peer, inputs.back()));
  }
  const Slot sum = rank == root ? out(rank) : s.add_scratch(in(rank));
  s.begin_round();
  s.add_reduce(sum, inputs);
  s.begin_round();
  if (rank != root) s.add(send(root, sum));
  for (int peer = 0; peer < size && rank == root; ++peer) {
    if (peer != root) s.add(recv(peer, out(peer)));
  }
  return s;
}

}  // namespace hccl_like
