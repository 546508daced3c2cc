#include <bit>

#include "collectives/algorithms/all.h"

namespace hccl_like {

// Reduce-scatter by recursive halving, allgather by recursive doubling: the traffic of the ring in
// 2 log2(size) rounds. The largest halves go to the nearest ranks. If size is no power of two, each
// of the first `extra` even ranks lends its input to its right neighbour and receives the result.
// Paper: Rabenseifner, Optimization of Collective Reduction Operations, ICCS 2004.
// Order of summation: a binary tree over neighbours. One rank sums each chunk, so results are
// bitwise equal on all ranks. 8- and 16-bit floats are rounded in every round.
//
// Rank 1 of 4, which owns chunk 2 (its number with the bits reversed):
//   0: send in[0..1]->0  recv_reduce in[2..3]+<-0 to out[2..3]
//   1: send out[3]->3  recv_reduce out[2]+<-3 to out[2]
//   2: send out[2]->3  recv out[3]<-3
//   3: send out[2..3]->0  recv out[0..1]<-0
Schedule allreduce_rabenseifner(int rank, int size) {
  const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  const int extra = size - core;
  const bool has_partner = rank < 2 * extra;
  Schedule s(/*chunks=*/core);
  if (size == 1) s.round(copy(in(0), out(0)));
  if (has_partner && rank % 2 == 0) {
    s.round(send(rank + 1, in(0), core));
    for (int bit = 1; bit < core; bit *= 2) s.round(), s.round();
    s.round(recv(rank + 1, out(0), core));
    return s;
  }
  if (extra > 0) s.begin_round();
  if (has_partner) s.add(recv_reduce(rank - 1, in(0), out(0), core));

  const int me = has_partner ? rank / 2 : rank - extra;  // number among the `core` ranks
  auto peer = [&](int bit) {
    const int other = me ^ bit;
    return other < extra ? 2 * other + 1 : other + extra;
  };
  bool fresh = !has_partner;  // nothing summed yet
  int mine = 0;               // first chunk that this rank still sums
  for (int bit = 1, half = core / 2; half > 0; bit *= 2, half /= 2) {
    const int keep = me & bit ? mine + half : mine;
    const int give = me & bit ? mine : mine + half;
    s.round(send(peer(bit), fresh ? in(give) : out(give), half),
            recv_reduce(peer(bit), fresh ? in(keep) : out(keep), out(keep), half));
    fresh = false;
    mine = keep;
  }
  for (int bit = core / 2, have = 1; bit > 0; bit /= 2, have *= 2) {
    const int first = mine & ~(have - 1);
    s.round(send(peer(bit), out(first), have), recv(peer(bit), out(first ^ have), have));
  }
  if (has_partner) s.round(send(rank - 1, out(0), core));
  return s;
}

}  // namespace hccl_like
