#include <algorithm>
#include <bit>

#include "collectives/algorithms/all.h"

namespace hccl_like {

// The root scatters the chunks down a binomial tree, then the chunks travel around a ring. The root
// sends little more than its payload, instead of log2(size) times as in the tree.
// Paper: Barnett et al., Interprocessor Collective Communication Library (InterCom), SHPCC 1994.
//
// 3 ranks, root 0:
//   rank 0                                        rank 1                            rank 2
//   0: send in[2]->2                              idle                              recv out[2]<-0
//   1: send in[1]->1                              recv out[1]<-0                    idle
//   2: send in[0]->1                              send out[1]->2  recv out[0]<-0    recv out[1]<-1
//   3: send in[2]->1  copy in[0..2] to out[0..2]  send out[0]->2  recv out[2]<-0    recv out[0]<-1
Schedule broadcast_scatter_allgather(int rank, int size, int root) {
  Schedule s(/*chunks=*/size);
  const int me = (rank - root + size) % size;  // number counted from the root
  auto peer = [&](int number) { return (number + root) % size; };
  auto data = [&](int chunk) { return me == 0 ? in(chunk) : out(chunk); };
  // After the scatter a rank has the chunks of its subtree, which starts with its own.
  auto subtree_end = [&](int number) { return number == 0 ? size : number + (number & -number); };
  auto has = [&](int number, int chunk) { return number <= chunk && chunk < subtree_end(number); };

  if (size == 1) s.begin_round();
  for (int distance = static_cast<int>(std::bit_ceil(static_cast<unsigned>(size))) / 2;
       distance > 0; distance /= 2) {
    s.begin_round();
    const int place = me % (2 * distance);
    const int first = place == 0 ? me + distance : me;  // first chunk that moves
    const int count = std::min(distance, size - first);
    if (place == distance) s.add(recv(peer(me - distance), out(first), count));
    if (place == 0 && first < size) s.add(send(peer(first), data(first), count));
  }
  // No chunk goes to a rank that has it, hence none to the root.
  for (int i = 0; i < size - 1; ++i) {
    const int next = (me + 1) % size, prev = (me + size - 1) % size;
    const int sent = (me - i + size) % size, received = (me - i - 1 + size) % size;
    s.begin_round();
    if (!has(next, sent)) s.add(send(peer(next), data(sent)));
    if (!has(me, received)) s.add(recv(peer(prev), out(received)));
  }
  if (me == 0) s.add(copy(in(0), out(0), size));
  return s;
}

}  // namespace hccl_like
