#include <algorithm>

#include "collectives/algorithms/all.h"
#include "collectives/algorithms/parts.h"

namespace hccl_like {

namespace {

// Appends one round: every rank sends its own and its received chunks to its local peers.
void append_share(Schedule& s, const Hosts& hosts, int rank) {
  const int host = hosts.host(rank);
  s.begin_round();
  for (int chunk = 0; chunk < hosts.size(); ++chunk) {
    const int brought = counterpart(hosts, host, chunk);
    if (brought != rank) {
      s.add(recv(brought, out(chunk)));
      continue;
    }
    for (const int peer : hosts.ranks(host))
      if (peer != rank) s.add(send(peer, out(chunk)));
  }
}

}  // namespace

// The leader of each host gathers its ranks' chunks, the leaders run Bruck's algorithm, and each
// leader sends the result to its ranks. Few messages: for small payloads.
// Paper: Bruck et al., Efficient Algorithms for All-to-All Communications, IEEE TPDS 8(11), 1997.
//
// Ranks 0 and 1 on one host, 2 and 3 on another:
//   rank 0                                   rank 1
//   0: recv out[1]<-1  copy in[0] to out[0]  send in[1]->0
//   1: send out[0..1]->2  recv out[2..3]<-2  idle
//   2: send out[0..3]->1                     recv out[0..3]<-0
Schedule allgather_leaders_bruck(int rank, const Hosts& hosts) {
  const auto size = static_cast<uint32_t>(hosts.size());
  const int host = hosts.host(rank), count = hosts.count();
  const auto local = hosts.ranks(host);
  const bool leads = rank == local[0];
  Schedule s(/*chunks=*/size);
  s.begin_round();
  if (!leads) s.add(send(local[0], in(rank)));
  for (size_t i = 1; i < local.size() && leads; ++i) s.add(recv(local[i], out(local[i])));
  if (leads) s.add(copy(in(rank), out(rank)));

  // A message is a run of consecutive chunks of hosts first, first + 1, ...
  const auto each_run = [&](int first, int blocks, auto visit) {
    std::vector<int> chunks;
    for (int i = 0; i < blocks; ++i) {
      const auto block = hosts.ranks((first + i) % count);
      chunks.insert(chunks.end(), block.begin(), block.end());
    }
    for (size_t begin = 0, end; begin < chunks.size(); begin = end) {
      for (end = begin + 1; end < chunks.size() && chunks[end] == chunks[end - 1] + 1;) ++end;
      visit(out(static_cast<size_t>(chunks[begin])), static_cast<uint32_t>(end - begin));
    }
  };
  for (int have = 1; have < count; have *= 2) {
    s.begin_round();
    if (!leads) continue;
    const int blocks = std::min(have, count - have), from = (host + have) % count;
    const int to = hosts.ranks((host + count - have) % count)[0];
    each_run(host, blocks, [&](Slot first, uint32_t n) { s.add(send(to, first, n)); });
    each_run(from, blocks,
             [&](Slot first, uint32_t n) { s.add(recv(hosts.ranks(from)[0], first, n)); });
  }
  s.begin_round();
  if (!leads) s.add(recv(local[0], out(0), size));
  for (size_t i = 1; i < local.size() && leads; ++i) s.add(send(local[i], out(0), size));
  return s;
}

// Every rank sends its chunk to its counterpart on each other host, then local peers share.
// Paper: Cho et al., BlueConnect: Decomposing All-Reduce for Deep Learning, MLSys 2019 (2nd half).
//
// Ranks 0 and 1 on one host, 2 and 3 on another, rank 0:
//   0: send in[0]->2  copy in[0] to out[0]  recv out[2]<-2
//   1: send out[0]->1  recv out[1]<-1  send out[2]->1  recv out[3]<-1
Schedule allgather_rails_direct(int rank, const Hosts& hosts) {
  const int host = hosts.host(rank);
  Schedule s(static_cast<uint32_t>(hosts.size()));
  s.begin_round();
  for (int i = 1; i < hosts.count(); ++i)
    s.add(send(counterpart(hosts, (host + i) % hosts.count(), rank), in(rank)));
  s.add(copy(in(rank), out(rank)));
  for (int chunk = 0; chunk < hosts.size(); ++chunk)
    if (hosts.host(chunk) != host && counterpart(hosts, host, chunk) == rank)
      s.add(recv(chunk, out(chunk)));
  append_share(s, hosts, rank);
  return s;
}

// The same with a ring of hosts for each chunk: a rank has one message out and one in at any time.
//
// Ranks 0 and 1 on one host, 2 and 3 on another, rank 0:
//   0: send in[0]->2  copy in[0] to out[0]  recv out[2]<-2
//   1: send out[0]->1  recv out[1]<-1  send out[2]->1  recv out[3]<-1
Schedule allgather_rails_ring(int rank, const Hosts& hosts) {
  const int host = hosts.host(rank), count = hosts.count();
  Schedule s(static_cast<uint32_t>(hosts.size()));
  const int before = (host + count - 1) % count, after = (host + 1) % count;
  const auto chunks = chunks_by_distance(hosts, rank);
  for (size_t round = 0; round + 1 < chunks.size(); ++round) {
    s.begin_round();
    for (const int chunk : chunks[round])
      s.add(send(counterpart(hosts, after, chunk), round == 0 ? in(chunk) : out(chunk)));
    for (const int chunk : chunks[round + 1])
      s.add(recv(counterpart(hosts, before, chunk), out(chunk)));
    if (round == 0) s.add(copy(in(rank), out(rank)));
  }
  append_share(s, hosts, rank);
  return s;
}

}  // namespace hccl_like
