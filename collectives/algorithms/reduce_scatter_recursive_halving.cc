#include "collectives/algorithms/all.h"

namespace hccl_like {

// In each round a rank gives away the half of its chunks that belongs to the other half of the
// ranks and adds what it gets to the half that it keeps. log2(size) rounds, no byte travels twice;
// for powers of two only.
//
// R. Thakur, R. Rabenseifner, W. Gropp: Optimization of Collective Communication Operations in
// MPICH, IJHPCA 19(1), 2005.
//
// Order of summation: of a binary tree, at first between ranks size / 2 apart. Each chunk is added
// up on one rank. 8- and 16-bit floats are rounded in every round.
//
// Rank 1 of 4:
//   0: send in[2..3]->3  recv_reduce in[0..1]+<-3 to scratch[0..1]
//   1: send scratch[0]->0  recv_reduce scratch[1]+<-0 to out[1]
Schedule reduce_scatter_recursive_halving(int rank, int size) {
  Schedule s(/*chunks=*/size);
  if (size == 1) s.round(copy(in(0), out(0)));
  // Only the chunk of this rank may be written to the output; the other sums live in scratch slots,
  // one for each chunk from `first` on.
  const int first = rank & (size / 2);
  for (int i = 0; i < size / 2 && size > 2; ++i) s.add_scratch(in(first + i));
  bool fresh = true;
  int mine = 0;  // first of the chunks that this rank is still adding up
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
