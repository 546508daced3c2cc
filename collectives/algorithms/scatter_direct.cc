#include "collectives/algorithms/all.h"

namespace hccl_like {

// The root sends every rank its chunk. Unlike in a tree, only the root needs all chunk sizes.
// Paper: Chan et al., Collective Communication: Theory, Practice, and Experience, CCPE 2007.
//
// 3 ranks, root 1:
//   rank 0              rank 1                                                   rank 2
//   0: recv out[0]<-1   send in[2]->2  send in[0]->0  copy in[1] to out[1]       recv out[2]<-1
Schedule scatter_direct(int rank, int size, int root) {
  Schedule s(/*chunks=*/size);
  s.begin_round();
  if (rank != root) {
    s.add(recv(root, out(rank)));
    return s;
  }
  for (int i = 1; i < size; ++i) s.add(send((rank + i) % size, in((rank + i) % size)));
  s.add(copy(in(rank), out(rank)));
  return s;
}

}  // namespace hccl_like
