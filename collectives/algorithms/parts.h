#pragma once
// Building blocks of the algorithms for several hosts.
#include <cstddef>
#include <span>
#include <vector>

#include "collectives/schedule/schedule.h"
#include "collectives/topology/hosts.h"

namespace hccl_like {

// A schedule for some ranks and some chunks, embedded in a larger one.
struct SubSchedule {
  Schedule schedule;
  std::vector<int> members;  // the outer rank of each inner rank
  int first_chunk = 0;       // outer number of inner chunk 0
  Slot in{}, out{};          // source and destination of inner chunk 0; others follow
  bool copies = true;        // keep the copies from input to output
};

// Rounds of a binomial tree.
size_t tree_rounds(int ranks);

// Appends `rounds` rounds with all parts in parallel. No part may have more rounds.
void append_parts(Schedule& s, std::span<const SubSchedule> parts, size_t rounds);

// A payload in shards. Each shard has one owner on every host; these owners form a rail. The shards
// of an owner are consecutive. With Hosts::most() shards, every rank owns some. With one shard, the
// first rank of each host is its leader.
class Shards {
 public:
  Shards(const Hosts& hosts, int count) : hosts_(hosts), count_(count) {}

  int count() const { return count_; }
  int owner(int host, int shard) const {
    return hosts_.ranks(
        host)[static_cast<size_t>(shard) * hosts_.ranks(host).size() / static_cast<size_t>(count_)];
  }
  // Owners by host.
  std::vector<int> rail(int shard) const;
  // Shards of a rank: [begin, end).
  int begin(int rank) const { return first_of(hosts_.place(rank), hosts_.on(hosts_.host(rank))); }
  int end(int rank) const { return first_of(hosts_.place(rank) + 1, hosts_.on(hosts_.host(rank))); }

 private:
  int first_of(int place, int ranks) const { return (place * count_ + ranks - 1) / ranks; }

  const Hosts& hosts_;
  int count_;
};

// Appends one or two rounds that leave the host's sums in `sums` (slot of the rank's first shard;
// others follow), in rank order and with one rounding. A shard is `chunks` chunks. On a host with
// one rank the sums are its input: the rounds are empty.
void append_sums_on_host(Schedule& s, const Hosts& hosts, const Shards& shards, int chunks,
                         int rank, Slot sums);

// Appends one round: owners send their output shards to local peers except `root` (a rank, or -1).
void append_gather_on_host(Schedule& s, const Hosts& hosts, const Shards& shards, int chunks,
                           int rank, int root = -1);

// The rank of `host` that stands for `rank` there: at the same place if the host has as many ranks.
int counterpart(const Hosts& hosts, int host, int rank);

// The chunks that pass through `rank` in a ring of hosts, in order, by the number of hosts between
// the chunk's own and this one. Found once: asking in every round takes a tenth of a second for a
// rank of 10,000.
std::vector<std::vector<int>> chunks_by_distance(const Hosts& hosts, int rank);

// Appends the first phase of the direct algorithms: every rank sends chunk p to rank p and sums its
// own chunk into `sum` (out(rank) or a scratch slot), in rank order, with one rounding.
void append_direct_reduction(Schedule& s, int rank, int size, Slot sum);

}  // namespace hccl_like
