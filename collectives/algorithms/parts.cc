#include "collectives/algorithms/parts.h"

#include <bit>

#include "collectives/algorithms/all.h"

namespace hccl_like {

namespace {

Slot moved(Slot base, uint32_t by) { return {base.buffer, base.index + by}; }

class Translation {
 public:
  Translation(Schedule& s, const SubSchedule& part)
      : part_(part), scratch_(static_cast<uint32_t>(s.scratch_like().size())) {
    for (const Slot& like : part.schedule.scratch_like())
      s.add_scratch(hccl_like::in(static_cast<uint32_t>(part.first_chunk) + like.index));
  }

  void append(Schedule& s, size_t round) const {
    if (round >= part_.schedule.rounds()) return;
    for (const Step& step : part_.schedule.steps(round)) {
      if (step.kind == Step::Kind::kReduce) {
        std::vector<Slot> sources;
        for (const Slot& source : part_.schedule.sources(step)) sources.push_back(slot(source));
        s.add_reduce(slot(step.dst), sources);
        continue;
      }
      Step translated = step;
      translated.a = slot(step.a), translated.dst = slot(step.dst);
      if (step.kind == Step::Kind::kCopy && (!part_.copies || translated.a == translated.dst))
        continue;
      if (step.peer >= 0) translated.peer = part_.members[static_cast<size_t>(step.peer)];
      s.add(translated);
    }
  }

 private:
  Slot slot(Slot slot) const {
    if (slot.buffer == Buffer::kScratch) return hccl_like::scratch(scratch_ + slot.index);
    return moved(slot.buffer == Buffer::kInput ? part_.in : part_.out, slot.index);
  }

  const SubSchedule& part_;
  const uint32_t scratch_;
};

}  // namespace

size_t tree_rounds(int ranks) {
  return static_cast<size_t>(std::bit_width(static_cast<unsigned>(ranks - 1)));
}

void append_parts(Schedule& s, std::span<const SubSchedule> parts, size_t rounds) {
  std::vector<Translation> translations;
  translations.reserve(parts.size());
  for (const SubSchedule& part : parts) translations.emplace_back(s, part);
  for (size_t round = 0; round < rounds; ++round) {
    s.begin_round();
    for (const Translation& part : translations) part.append(s, round);
  }
}

std::vector<int> Shards::rail(int shard) const {
  std::vector<int> owners;
  for (int host = 0; host < hosts_.count(); ++host) owners.push_back(owner(host, shard));
  return owners;
}

void append_sums_on_host(Schedule& s, const Hosts& hosts, const Shards& shards, int chunks,
                         int rank, Slot sums) {
  const auto local = hosts.ranks(hosts.host(rank));
  const int place = hosts.place(rank), ranks = static_cast<int>(local.size());
  const int first = shards.begin(rank) * chunks,
            count = (shards.end(rank) - shards.begin(rank)) * chunks;

  s.begin_round();
  for (int i = 1; i < ranks; ++i) {
    const int peer = local[static_cast<size_t>((place + i) % ranks)];
    s.add(send(peer, in(shards.begin(peer) * chunks),
               (shards.end(peer) - shards.begin(peer)) * chunks));
  }
  // Addition of two numbers commutes: add on arrival.
  if (ranks == 2) s.add(recv_reduce(local[static_cast<size_t>(1 - place)], in(first), sums, count));
  std::vector<Slot> inputs;  // of the first chunk, by place
  for (int other = 0; other < ranks && ranks > 2; ++other) {
    if (other == place) {
      inputs.push_back(in(first));
      continue;
    }
    inputs.push_back(scratch(s.scratch_like().size()));
    for (int chunk = 0; chunk < count; ++chunk) s.add_scratch(in(first + chunk));
    s.add(recv(local[static_cast<size_t>(other)], inputs.back(), count));
  }
  if (hosts.most() < 3) return;

  s.begin_round();
  for (int chunk = 0; chunk < count && ranks > 2; ++chunk) {
    std::vector<Slot> sources;
    for (const Slot& input : inputs) sources.push_back(moved(input, chunk));
    s.add_reduce(moved(sums, chunk), sources);
  }
}

void append_gather_on_host(Schedule& s, const Hosts& hosts, const Shards& shards, int chunks,
                           int rank, int root) {
  const auto local = hosts.ranks(hosts.host(rank));
  const int place = hosts.place(rank), ranks = static_cast<int>(local.size());
  const auto first = [&](int owner) { return shards.begin(owner) * chunks; };
  const auto count = [&](int owner) { return (shards.end(owner) - shards.begin(owner)) * chunks; };
  s.begin_round();
  for (int i = 1; i < ranks; ++i) {
    const int to = local[static_cast<size_t>((place + i) % ranks)];
    const int from = local[static_cast<size_t>((place + ranks - i) % ranks)];
    if (to != root) s.add(send(to, out(first(rank)), count(rank)));
    if (rank != root) s.add(recv(from, out(first(from)), count(from)));
  }
}

int counterpart(const Hosts& hosts, int host, int rank) {
  const auto local = hosts.ranks(host);
  return local[static_cast<size_t>(hosts.place(rank)) * local.size() /
               static_cast<size_t>(hosts.on(hosts.host(rank)))];
}

std::vector<std::vector<int>> chunks_by_distance(const Hosts& hosts, int rank) {
  const int host = hosts.host(rank), count = hosts.count();
  std::vector<std::vector<int>> chunks(static_cast<size_t>(count));
  for (int chunk = 0; chunk < hosts.size(); ++chunk)
    if (counterpart(hosts, host, chunk) == rank)
      chunks[static_cast<size_t>((host - hosts.host(chunk) + count) % count)].push_back(chunk);
  return chunks;
}

void append_direct_reduction(Schedule& s, int rank, int size, Slot sum) {
  s.begin_round();
  // Start with the right neighbour to spread the load.
  for (int i = 1; i < size; ++i) s.add(send((rank + i) % size, in((rank + i) % size)));
  if (size == 2) {
    // Addition of two numbers commutes: add on arrival, without a scratch slot.
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

// 0: send in[0]->3
Schedule send_to(int peer) {
  Schedule s(/*chunks=*/1);
  s.round(send(peer, in(0)));
  return s;
}

// 0: recv out[0]<-2
Schedule recv_from(int peer) {
  Schedule s(/*chunks=*/1);
  s.round(recv(peer, out(0)));
  return s;
}

}  // namespace hccl_like
