#include <bit>

#include "collectives/algorithms/all.h"

namespace hccl_like {

// In each round every rank with the data sends it on, so their number doubles. The first message
// crosses half the ranks, the last ones go to neighbours, which probably share a host.
// Paper: Thakur et al., Optimization of Collective Communication Operations in MPICH, IJHPCA 2005.
//
// 3 ranks, root 0:
//   rank 0                                   rank 1            rank 2
//   0: send in[0]->2                         idle              recv out[0]<-0
//   1: send in[0]->1  copy in[0] to out[0]   recv out[0]<-0    idle
Schedule broadcast_binomial(int rank, int size, int root) {
  Schedule s(/*chunks=*/1);
  const int me = (rank - root + size) % size;  // number counted from the root
  auto peer = [&](int number) { return (number + root) % size; };
  for (int distance = static_cast<int>(std::bit_ceil(static_cast<unsigned>(size))) / 2;
       distance > 0; distance /= 2) {
    s.begin_round();
    const int place = me % (2 * distance);
    if (place == distance) s.add(recv(peer(me - distance), out(0)));
    if (place == 0 && me + distance < size) {
      s.add(send(peer(me + distance), me == 0 ? in(0) : out(0)));
    }
  }
  if (me == 0) s.add(copy(in(0), out(0)));
  return s;
}

}  // namespace hccl_like
