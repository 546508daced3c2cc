#include "collectives/algorithms/all.h"

namespace hccl_like {

// In each round a rank sends the half of its chunks that belongs to the other half of the ranks,
// and adds the received half to its own. log2(size) rounds, powers of two only.
// Paper: Thakur et al., Optimization of Collective Communication Operations in MPICH, IJHPCA 2005.
// Order of summation: a binary tree, first between ranks size / 2 apart. One rank sums each chunk.
// 8- and 16-bit floats are rounded in every round.
//
// Rank 1 of 4:
//   0: send in[2..3]->3  recv_reduce in[0..1]+<-3 to scratch[0..1]
//   1: send scratch[0]->0  recv_reduce scratch[1]+<-0 to out[1]
Schedule reduce_scatter_recursive_halving(int rank, int size) {
  Schedule s(/*chunks=*/size);
  if (size == 1) s.round(copy(in(0), out(0)));
  // Only this rank's chunk may go to the output. Other sums use scratch slots, one for each chunk
  // from `first` on.
  const int first = rank & (size / 2);
  for (int i = 0; i < size / 2 && size > 2; ++i) s.add_scratch(in(first + i));
  bool fresh = true;
  int mine = 0;  // first chunk that this rank still sums
  auto sum = [&](int chunk) { return fresh ? in(chunk) : scratch(chunk - first); };
  for (int half = size / 2; half > 0; half /= 2) {
    const int keep = rank & half ? mine + half : mine;
    const int give = rank & half ? mine : mine + half;
    s.round(
        send(rank ^ half, sum(give), half),
        recv_reduce(rank ^ half, sum(keep), half == 1 ? out(rank) : scratch(keep - first), half));
    fresh = false;
    mine = keep;
  }
  return s;
}

}  // namespace hccl_like
