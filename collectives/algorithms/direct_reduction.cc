#include "collectives/algorithms/direct_reduction.h"

namespace hccl_like {

void append_direct_reduction(Schedule& s, int rank, int size, Slot sum) {
  s.begin_round();
  // Each rank starts with its right neighbour, so that not all of them send to rank 0 first.
  for (int i = 1; i < size; ++i) s.add(send((rank + i) % size, in((rank + i) % size)));
  if (size == 2) {
    // Two numbers have the same sum in either order: it is added up as it arrives, without a slot to keep it.
    s.add(recv_reduce(1 - rank, in(rank), sum));
    return;
  }
  std::vector<Slot> inputs;
  for (int peer = 0; peer < size; ++peer) {
    inputs.push_back(peer == rank ? in(rank) : s.add_scratch(in(rank)));
    if (peer != rank) s.add(recv(peer, inputs.back()));
  }
  s.begin_round();
  s.add_reduce(sum, inputs);
}

}  // namespace hccl_like
