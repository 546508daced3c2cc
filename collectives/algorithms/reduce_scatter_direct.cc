#include "collectives/algorithms/all.h"
#include "collectives/algorithms/parts.h"

namespace hccl_like {

// Every rank sends chunk p to rank p and sums its own chunk. One round, a message to every peer.
// Paper: Thakur et al., Optimization of Collective Communication Operations in MPICH, IJHPCA 2005.
// Order of summation: rank 0, 1, 2, ... with one rounding for 8- and 16-bit floats.
//
// Rank 1 of 3:
//   0: send in[2]->2  send in[0]->0  recv scratch[0]<-0  recv scratch[1]<-2
//   1: reduce scratch[0]+in[1]+scratch[1] to out[1]
Schedule reduce_scatter_direct(int rank, int size) {
  Schedule s(/*chunks=*/size);
  append_direct_reduction(s, rank, size, out(rank));
  return s;
}

}  // namespace hccl_like
