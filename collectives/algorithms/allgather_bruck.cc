#include <algorithm>

#include "collectives/algorithms/all.h"

namespace hccl_like {

// Before round k a rank has the chunks of 2^k ranks, starting with its own. It sends them to the
// rank 2^k before and receives as many from the rank 2^k after. Rounds: ceil(log2(size)), for any
// size. A run of chunks that wraps around the end of the output is two messages.
// Paper: Bruck et al., Efficient Algorithms for All-to-All Communications, IEEE TPDS 8(11), 1997.
//
// Rank 1 of 3:
//   0: send in[1]->0  recv out[2]<-2  copy in[1] to out[1]
//   1: send out[1]->2  recv out[0]<-0
// Rank 2 of 4; chunks 2 and 3 wrap around to 0 and 1:
//   0: send in[2]->1  recv out[3]<-3  copy in[2] to out[2]
//   1: send out[2..3]->0  recv out[0..1]<-0
Schedule allgather_bruck(int rank, int size) {
  Schedule s(/*chunks=*/size);
  if (size == 1) s.round(copy(in(0), out(0)));
  for (int have = 1; have < size; have *= 2) {
    const int to = (rank + size - have) % size, from = (rank + have) % size;
    const int count = std::min(have, size - have);
    const int sent_before_end = std::min(count, size - rank);
    const int received_before_end = std::min(count, size - from);
    s.begin_round();
    s.add(send(to, have == 1 ? in(rank) : out(rank), sent_before_end));
    s.add(send(to, out(0), count - sent_before_end));
    s.add(recv(from, out(from), received_before_end));
    s.add(recv(from, out(0), count - received_before_end));
    if (have == 1) s.add(copy(in(rank), out(rank)));
  }
  return s;
}

}  // namespace hccl_like
