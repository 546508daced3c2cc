#include <bit>

#include "collectives/algorithms/all.h"

namespace hccl_like {

// In round k, partners at distance 2^k exchange their sums: log2(size) rounds, the minimum with one
// peer at a time. If size is no power of two, each of the first `extra` even ranks lends its input
// to its right neighbour and receives the result.
// Paper: Thakur et al., Optimization of Collective Communication Operations in MPICH, IJHPCA 2005.
// Order of summation: a binary tree over neighbours. Floating-point a + b equals b + a, so by
// induction results are bitwise equal on all ranks. 8- and 16-bit floats are rounded each round.
//
// 3 ranks, rank 0 lends to rank 1:
//   rank 0             rank 1                                rank 2
//   0: send in[0]->1   recv_reduce in[0]+<-0 to scratch[0]   idle
//   1: idle            send scratch[0]->2                    send in[0]->1
//                      recv_reduce scratch[0]+<-2 to out[0]  recv_reduce in[0]+<-1 to scratch[0]
//   2: recv out[0]<-1  send out[0]->0                        copy scratch[0] to out[0]
Schedule allreduce_recursive_doubling(int rank, int size) {
  Schedule s(/*chunks=*/1);
  const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  const int extra = size - core;
  const bool has_partner = rank < 2 * extra;
  if (has_partner && rank % 2 == 0) {
    s.round(send(rank + 1, in(0)));
    for (int bit = 1; bit < core; bit *= 2) s.round();
    s.round(recv(rank + 1, out(0)));
    return s;
  }

  // A round must not write its send buffer, so the sum alternates between two slots. In place, the
  // output may be one of them only once the sum has left the input.
  const Slot slots[] = {s.add_scratch(in(0)), s.add_scratch(in(0))};
  Slot sum = in(0);
  if (extra > 0) s.begin_round();
  if (has_partner) {
    s.add(recv_reduce(rank - 1, sum, slots[0]));
    sum = slots[0];
  }

  const int me = has_partner ? rank / 2 : rank - extra;  // number among the `core` ranks
  for (int bit = 1; bit < core; bit *= 2) {
    const int other = me ^ bit;
    const int peer = other < extra ? 2 * other + 1 : other + extra;
    const bool last = 2 * bit == core;
    const Slot next = last && sum != in(0) ? out(0) : sum == slots[0] ? slots[1] : slots[0];
    s.round(send(peer, sum), recv_reduce(peer, sum, next));
    sum = next;
  }

  if (sum == out(0) && !has_partner) return s;
  s.begin_round();
  if (has_partner) s.add(send(rank - 1, sum));
  if (sum != out(0)) s.add(copy(sum, out(0)));
  return s;
}

}  // namespace hccl_like
