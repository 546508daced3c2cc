#include <vector>

#include "collectives/algorithms/all.h"
#include "collectives/algorithms/parts.h"

namespace hccl_like {

namespace {

// The host's sums that a rank has.
struct Sums {
  std::vector<int> chunks;  // ascending
  std::vector<Slot> slots;  // by chunk, of all chunks
};

// Appends two rounds that leave the host's sum of each chunk on local rank `owner(chunk)`.
Sums append_chunk_sums(Schedule& s, const Hosts& hosts, int rank, auto owner) {
  const auto local = hosts.ranks(hosts.host(rank));
  std::vector<Slot> inputs;  // of all local ranks for each chunk of the rank
  Sums sums{.chunks = {}, .slots = std::vector<Slot>(s.chunks())};
  s.begin_round();
  for (int chunk = 0; chunk < hosts.size(); ++chunk) {
    const int keeps = owner(chunk);
    if (keeps != rank) {
      s.add(send(keeps, in(chunk)));
      continue;
    }
    sums.chunks.push_back(chunk);
    for (const int peer : local) {
      inputs.push_back(peer == rank ? in(chunk) : s.add_scratch(in(chunk)));
      if (peer != rank) s.add(recv(peer, inputs.back()));
    }
  }
  s.begin_round();
  auto sources = inputs.begin();
  for (const int chunk : sums.chunks) {
    sums.slots[chunk] = local.size() == 1 ? *sources : s.add_scratch(in(chunk));
    if (local.size() > 1) s.add_reduce(sums.slots[chunk], {sources, local.size()});
    sources += local.size();
  }
  return sums;
}

}  // namespace

// The leader of each host sums its ranks' inputs, sends every other leader the sums for that host,
// and sends each of its ranks the final sum. Few messages: for small payloads.
// Order of summation: the ranks of a host in rank order, then the hosts in order, with one rounding
// each for 8- and 16-bit floats.
//
// Ranks 0 and 1 on one host, 2 and 3 on another, rank 0:
//   0: recv scratch[0..3]<-1
//   1: reduce in[0]+scratch[0] to scratch[4]  ...  reduce in[3]+scratch[3] to scratch[7]
//   2: send scratch[6..7]->2  recv scratch[8..9]<-2
//   3: reduce scratch[4]+scratch[8] to out[0]  reduce scratch[5]+scratch[9] to scratch[10]
//   4: send scratch[10]->1
Schedule reduce_scatter_leaders_direct(int rank, const Hosts& hosts) {
  const auto size = static_cast<uint32_t>(hosts.size());
  const int host = hosts.host(rank);
  const auto local = hosts.ranks(host);
  Schedule s(/*chunks=*/size);
  if (rank != local[0]) {
    s.round(send(local[0], in(0), size));
    for (int i = 0; i < 3; ++i) s.round();
    s.round(recv(local[0], out(rank)));
    return s;
  }

  s.begin_round();
  std::vector<uint32_t> inputs;  // first scratch slot of each local peer
  for (const int peer : local.subspan(1)) {
    inputs.push_back(static_cast<uint32_t>(s.scratch_like().size()));
    for (uint32_t chunk = 0; chunk < size; ++chunk) s.add_scratch(in(chunk));
    s.add(recv(peer, scratch(inputs.back()), size));
  }
  // Sums for one host are contiguous, and so are sums from one host.
  s.begin_round();
  std::vector<Slot> sums;  // first slot for each host
  for (int other = 0; other < hosts.count(); ++other) {
    sums.push_back(scratch(s.scratch_like().size()));
    for (const int chunk : hosts.ranks(other)) {
      std::vector<Slot> sources{in(chunk)};
      for (const uint32_t first : inputs)
        sources.push_back(scratch(first + static_cast<uint32_t>(chunk)));
      s.add_reduce(s.add_scratch(in(chunk)), sources);
    }
  }
  s.begin_round();
  const auto own = static_cast<uint32_t>(local.size());
  std::vector<Slot> parts(static_cast<size_t>(hosts.count()));
  parts[static_cast<size_t>(host)] = sums[static_cast<size_t>(host)];
  for (int i = 1; i < hosts.count(); ++i) {
    const int other = (host + i) % hosts.count();
    const int peer = hosts.ranks(other)[0];
    s.add(send(peer, sums[static_cast<size_t>(other)], static_cast<uint32_t>(hosts.on(other))));
    Slot& part = parts[static_cast<size_t>(other)];
    part = scratch(s.scratch_like().size());
    for (const int chunk : local) s.add_scratch(in(chunk));
    s.add(recv(peer, part, own));
  }
  s.begin_round();
  std::vector<Slot> results;
  for (uint32_t i = 0; i < own; ++i) {
    results.push_back(i == 0 ? out(rank) : s.add_scratch(in(local[i])));
    std::vector<Slot> sources;
    for (const Slot& part : parts) sources.push_back(scratch(part.index + i));
    s.add_reduce(results.back(), sources);
  }
  s.begin_round();
  for (uint32_t i = 1; i < own; ++i) s.add(send(local[i], results[i]));
  return s;
}

// On every host, the counterpart of a chunk's rank sends the host's sum to that rank.
// Paper: Cho et al., BlueConnect: Decomposing All-Reduce for Deep Learning, MLSys 2019 (1st half).
// Order of summation: the ranks of a host in rank order, then the hosts in order, with one rounding
// each for 8- and 16-bit floats.
//
// Ranks 0 and 1 on one host, 2 and 3 on another, rank 0:
//   0: recv scratch[0]<-1  send in[1]->1  recv scratch[1]<-1  send in[3]->1
//   1: reduce in[0]+scratch[0] to scratch[2]  reduce in[2]+scratch[1] to scratch[3]
//   2: send scratch[3]->2  recv scratch[4]<-2
//   3: reduce scratch[2]+scratch[4] to out[0]
Schedule reduce_scatter_rails_direct(int rank, const Hosts& hosts) {
  const int host = hosts.host(rank);
  Schedule s(static_cast<uint32_t>(hosts.size()));
  const Sums sums =
      append_chunk_sums(s, hosts, rank, [&](int chunk) { return counterpart(hosts, host, chunk); });
  s.begin_round();
  for (const int chunk : sums.chunks)
    if (hosts.host(chunk) != host) s.add(send(chunk, sums.slots[chunk]));
  std::vector<Slot> parts;
  for (int other = 0; other < hosts.count(); ++other) {
    parts.push_back(other == host ? sums.slots[rank] : s.add_scratch(in(rank)));
    if (other != host) s.add(recv(counterpart(hosts, other, rank), parts.back()));
  }
  s.begin_round();
  s.add_reduce(out(rank), parts);
  return s;
}

// The same with a ring of hosts for each chunk: one message out and one in at any time.
// Order of summation: the ranks of a host in rank order, then along the ring from the host after
// the chunk's to the chunk's.
//
// Ranks 0 and 1 on one host, 2 and 3 on another, rank 0:
//   0: recv scratch[0]<-1  send in[1]->1  recv scratch[1]<-1  send in[3]->1
//   1: reduce in[0]+scratch[0] to scratch[2]  reduce in[2]+scratch[1] to scratch[3]
//   2: send scratch[3]->2  recv_reduce scratch[2]+<-2 to out[0]
Schedule reduce_scatter_rails_ring(int rank, const Hosts& hosts) {
  const int host = hosts.host(rank), count = hosts.count();
  Schedule s(static_cast<uint32_t>(hosts.size()));
  const Sums sums =
      append_chunk_sums(s, hosts, rank, [&](int chunk) { return counterpart(hosts, host, chunk); });
  // Slots for arriving sums. A rank alone on its host has its own sum in the constant input.
  std::vector<Slot> moving = sums.slots;
  moving[rank] = out(rank);
  for (const int chunk : sums.chunks)
    if (moving[chunk].buffer == Buffer::kInput) moving[chunk] = s.add_scratch(in(chunk));
  // A chunk's ring begins on the host after its own, and ends on its own.
  const int before = (host + count - 1) % count, after = (host + 1) % count;
  const auto chunks = chunks_by_distance(hosts, rank);
  for (size_t round = 1; round < chunks.size(); ++round) {
    s.begin_round();
    for (const int chunk : chunks[round])
      s.add(send(counterpart(hosts, after, chunk), round == 1 ? sums.slots[chunk] : moving[chunk]));
    for (const int chunk : chunks[(round + 1) % chunks.size()])
      s.add(recv_reduce(counterpart(hosts, before, chunk), sums.slots[chunk], moving[chunk]));
  }
  return s;
}

}  // namespace hccl_like
