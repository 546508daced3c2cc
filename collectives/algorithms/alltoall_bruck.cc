#include "collectives/algorithms/all.h"

namespace hccl_like {

// A chunk for the rank at distance i travels by the powers of two in i: in round k, all chunks
// whose i has bit k move 2^k ranks in one message. ceil(log2(size)) messages instead of size - 1,
// but each chunk travels log2(size) / 2 times: for small chunks, all of one size.
// Paper: Bruck et al., Efficient Algorithms for All-to-All Communications, IEEE TPDS 8(11), 1997.
//
// Rank 0 of 4. Its chunk 3 goes via rank 1; scratch[3] is rank 3's chunk for rank 2:
//   0: copy in[1] to scratch[0]  copy in[3] to scratch[1]
//   1: send scratch[0..1]->1  recv scratch[2..3]<-3
//   2: copy in[2] to scratch[0]  copy scratch[3] to scratch[1]
//   3: send scratch[0..1]->2  recv scratch[4..5]<-2
//   4: copy in[0] to out[0]        copy scratch[2] to out[3]
//      copy scratch[4] to out[2]   copy scratch[5] to out[1]
Schedule alltoall_bruck(int rank, int size) {
  Schedule s(/*chunks=*/size);
  std::vector<Slot> chunk(
      size);  // where the chunk is that has (still, or all the way) gone i ranks
  for (int i = 0; i < size; ++i) chunk[i] = in((rank + i) % size);
  const Slot packed = s.add_scratch(in(0), size / 2);

  for (int bit = 1; bit < size; bit *= 2) {
    s.begin_round();
    uint32_t count = 0;
    const Slot received = scratch(s.scratch_like().size());
    Step run = copy(in(0), packed, 0);  // of chunks that lie side by side
    for (int i = bit; i < size; ++i) {
      if ((i & bit) == 0) continue;
      if (chunk[i] != Slot{run.a.buffer, run.a.index + run.count}) {
        s.add(run);
        run = copy(chunk[i], scratch(packed.index + count), 0);
      }
      chunk[i] = scratch(received.index + count);
      ++run.count, ++count;
    }
    s.add(run);
    s.add_scratch(in(0), count);
    s.round(send((rank + bit) % size, packed, count),
            recv((rank + size - bit) % size, received, count));
  }

  s.begin_round();
  for (int i = 0; i < size; ++i) s.add(copy(chunk[i], out((rank + size - i) % size)));
  return s;
}

}  // namespace hccl_like
