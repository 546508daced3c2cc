#include "collectives/algorithms/all.h"
#include "collectives/algorithms/parts.h"

namespace hccl_like {

// A rank sends all chunks for another host in one message to the rank at its own place there, which
// forwards them. Fewest messages between hosts with every rank active, but remote data moves twice:
// for small chunks. Forwarding needs a known size, so all chunks have one size.
// Paper: Bruck et al., Efficient Algorithms for All-to-All Communications, IEEE TPDS 8(11), 1997.
//
// Ranks 0 and 1 on one host, 2 and 3 on another, rank 0:
//   0: copy in[0] to out[0]  send in[1]->1  recv out[1]<-1  send in[2..3]->2  recv scratch[0..1]<-2
//   1: copy scratch[0] to out[2]  send scratch[1]->1  recv out[3]<-1
Schedule alltoall_rails(int rank, const Hosts& hosts) {
  const int host = hosts.host(rank);
  const auto local = hosts.ranks(host);
  Schedule s(static_cast<uint32_t>(hosts.size()));
  s.begin_round();
  s.add(copy(in(rank), out(rank)));
  for (const int peer : local) {
    if (peer == rank) continue;
    s.add(send(peer, in(peer)));
    s.add(recv(peer, out(peer)));
  }
  // A message is a run of chunks for ranks with consecutive numbers.
  const auto each_run = [](std::span<const int> ranks, auto visit) {
    for (size_t begin = 0, end; begin < ranks.size(); begin = end) {
      for (end = begin + 1; end < ranks.size() && ranks[end] == ranks[end - 1] + 1;) ++end;
      visit(begin, static_cast<uint32_t>(end - begin));
    }
  };
  for (int i = 1; i < hosts.count(); ++i) {
    const int other = (host + i) % hosts.count();
    const int relay = counterpart(hosts, other, rank);
    each_run(hosts.ranks(other), [&](size_t begin, uint32_t count) {
      s.add(send(relay, in(static_cast<size_t>(hosts.ranks(other)[begin])), count));
    });
  }
  std::vector<std::pair<int, uint32_t>> arrived;  // sender and first slot
  for (int from = 0; from < hosts.size(); ++from) {
    if (hosts.host(from) == host || counterpart(hosts, host, from) != rank) continue;
    const auto first = static_cast<uint32_t>(s.scratch_like().size());
    arrived.emplace_back(from, first);
    for (size_t i = 0; i < local.size(); ++i) s.add_scratch(in(0));
    each_run(local, [&](size_t begin, uint32_t count) {
      s.add(recv(from, scratch(first + begin), count));
    });
  }
  s.begin_round();
  for (const auto& [from, first] : arrived) {
    for (size_t i = 0; i < local.size(); ++i) {
      if (local[i] == rank)
        s.add(copy(scratch(first + i), out(static_cast<size_t>(from))));
      else
        s.add(send(local[i], scratch(first + i)));
    }
  }
  for (int from = 0; from < hosts.size(); ++from) {
    const int relay = counterpart(hosts, host, from);
    if (hosts.host(from) != host && relay != rank)
      s.add(recv(relay, out(static_cast<size_t>(from))));
  }
  return s;
}

}  // namespace hccl_like
