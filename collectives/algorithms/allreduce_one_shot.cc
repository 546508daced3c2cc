#include "collectives/algorithms/all.h"

namespace hccl_like {

// Every rank sends its whole input to every peer and sums all inputs. One round of messages, but
// (size - 1) times the payload: for few bytes on few ranks.
// Paper: Bruck, Ho, Efficient Global Combine Operations in Multi-Port Message-Passing Systems, PPL
// 3(4), 1993 (case: as many ports as peers).
// Order of summation: rank 0, 1, 2, ... on every rank, with one rounding for 8- and 16-bit floats,
// so results are bitwise equal on all ranks.
//
// Rank 1 of 3:
//   0: send in[0]->2  send in[0]->0  recv scratch[0]<-0  recv scratch[1]<-2
//   1: reduce scratch[0]+in[0]+scratch[1] to out[0]
Schedule allreduce_one_shot(int rank, int size) {
  Schedule s(/*chunks=*/1);
  s.begin_round();
  for (int i = 1; i < size; ++i) s.add(send((rank + i) % size, in(0)));
  std::vector<Slot> inputs;
  for (int peer = 0; peer < size; ++peer) {
    inputs.push_back(peer == rank ? in(0) : s.add_scratch(in(0)));
    if (peer != rank) s.add(recv(peer, inputs.back()));
  }
  s.begin_round();
  s.add_reduce(out(0), inputs);
  return s;
}

}  // namespace hccl_like
