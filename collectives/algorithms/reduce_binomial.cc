#include "collectives/algorithms/all.h"

namespace hccl_like {

// The broadcast tree reversed: in each round half of the ranks that hold a sum send it to the other
// half. ceil(log2(size)) rounds, for small payloads.
// Paper: Thakur et al., Optimization of Collective Communication Operations in MPICH, IJHPCA 2005.
// Order of summation: a binary tree over neighbours, counted from the root. 8- and 16-bit floats
// are rounded in every round.
//
// 3 ranks, root 0:
//   rank 0                                 rank 1             rank 2
//   0: recv_reduce in[0]+<-1 to out[0]     send in[0]->0      idle
//   1: recv_reduce out[0]+<-2 to out[0]    idle               send in[0]->0
Schedule reduce_binomial(int rank, int size, int root) {
  Schedule s(/*chunks=*/1);
  const int me = (rank - root + size) % size;  // number counted from the root
  auto peer = [&](int number) { return (number + root) % size; };
  if (size == 1) s.round(copy(in(0), out(0)));
  Slot sum = in(0);
  for (int distance = 1; distance < size; distance *= 2) {
    s.begin_round();
    const int place = me % (2 * distance);
    if (place == distance) s.add(send(peer(me - distance), sum));
    if (place != 0 || me + distance >= size) continue;
    const Slot into = me == 0 ? out(0) : sum == in(0) ? s.add_scratch(in(0)) : sum;
    s.add(recv_reduce(peer(me + distance), sum, into));
    sum = into;
  }
  return s;
}

}  // namespace hccl_like
