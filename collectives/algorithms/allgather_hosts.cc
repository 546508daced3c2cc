#include <algorithm>

#include "collectives/algorithms/all.h"
#include "collectives/algorithms/parts.h"

namespace hccl_like {

namespace {

// Appends the round in which every rank gives the chunks that it brought to this host, and its own,
// to the others there.
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

// The leader of each host collects what its ranks have, the leaders exchange that as in Bruck's
// algorithm, and each gives its ranks the whole. Few messages: for small payloads.
//
// J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby: Efficient Algorithms for All-to-All
// Communications in Multiport Message-CallerDriven Systems, IEEE TPDS 8(11), 1997, for the middle.
//
// Ranks 0 and 1 on one host, 2 and 3 on another:
//   rank 0                                     rank 1               rank 2 rank 3 0: recv out[1]<-1
//   copy in[0] to out[0]    send in[1]->0        recv out[3]<-3  copy in[2] to out[2]       send
//   in[3]->2 1: send out[0..1]->2  recv out[2..3]<-2    idle                 send out[2..3]->0 recv
//   out[0..1]<-0       idle 2: send out[0..3]->1                       recv out[0..3]<-0    send
//   out[0..3]->3                          recv out[0..3]<-2
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

  // Messages are runs of chunks with consecutive numbers, among those of hosts first, first + 1,
  // ...
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

// Every rank sends its chunk to the rank at its place on each other host, and each host's ranks
// share what came: nothing enters a host twice.
//
// M. Cho, U. Finkler, M. Serrano, D. Kung, H. Hunter: BlueConnect: Decomposing All-Reduce for Deep
// Learning on Heterogeneous Network Hierarchy, MLSys 2019 (its second half).
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

// The same with a ring of hosts for each chunk: only neighbours talk, and at any time a rank has
// one message out and one in.
//
// Ranks 0 and 1 on one host, 2 and 3 on another, rank 0:
//   0: send in[0]->2  copy in[0] to out[0]  recv out[2]<-2
//   1: send out[0]->1  recv out[1]<-1  send out[2]->1  recv out[3]<-1
Schedule allgather_rails_ring(int rank, const Hosts& hosts) {
  const int host = hosts.host(rank), count = hosts.count();
  Schedule s(static_cast<uint32_t>(hosts.size()));
  for (int round = 0; round < count - 1; ++round) {
    s.begin_round();
    for (int chunk = 0; chunk < hosts.size(); ++chunk) {
      if (counterpart(hosts, host, chunk) != rank) continue;
      const int at = (host - hosts.host(chunk) + count) % count;  // hosts that it has left behind
      if (at == round)
        s.add(
            send(counterpart(hosts, (host + 1) % count, chunk), at == 0 ? in(chunk) : out(chunk)));
      if (at == round + 1)
        s.add(recv(counterpart(hosts, (host + count - 1) % count, chunk), out(chunk)));
    }
    if (round == 0) s.add(copy(in(rank), out(rank)));
  }
  append_share(s, hosts, rank);
  return s;
}

}  // namespace hccl_like
