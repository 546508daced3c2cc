#pragma once
// What the algorithms for several hosts are put together from.
#include <cstddef>
#include <span>
#include <vector>

#include "collectives/schedule/schedule.h"
#include "collectives/topology/hosts.h"

namespace hccl_like {

// A schedule of some of the ranks on some of the chunks, to be part of a larger one.
struct SubSchedule {
  Schedule schedule;
  std::vector<int> members;  // the rank behind each number in it
  int first_chunk = 0;       // its chunk i is this one + i
  Slot in{}, out{};          // where its chunk 0 comes from and goes to; the others follow
  bool copies = true;        // whether its copies from input to output are wanted
};

// The rounds of a binomial tree.
size_t tree_rounds(int ranks);

// Appends `rounds` rounds, in which the parts run side by side; none of them has more.
void append_parts(Schedule& s, std::span<const SubSchedule> parts, size_t rounds);

// A payload in shards, each of which has an owner on every host: the owners of a shard are a rail.
// Shards of one owner follow each other. With as many shards as the fullest host has ranks all
// ranks own some; with one shard, the first rank of each host is its leader.
class Shards {
 public:
  Shards(const Hosts& hosts, int count) : hosts_(hosts), count_(count) {}

  int count() const { return count_; }
  int owner(int host, int shard) const {
    return hosts_.ranks(
        host)[static_cast<size_t>(shard) * hosts_.ranks(host).size() / static_cast<size_t>(count_)];
  }
  // By host.
  std::vector<int> rail(int shard) const;
  // Those of a rank: [begin, end).
  int begin(int rank) const { return first_of(hosts_.place(rank), hosts_.on(hosts_.host(rank))); }
  int end(int rank) const { return first_of(hosts_.place(rank) + 1, hosts_.on(hosts_.host(rank))); }

 private:
  int first_of(int place, int ranks) const { return (place * count_ + ranks - 1) / ranks; }

  const Hosts& hosts_;
  int count_;
};

// Appends a round or two after which `sums` (a slot for the first of the rank's shards, the others
// follow) hold the sums of the host's inputs, in rank order and with one rounding. A shard is
// `chunks` chunks. On a host of one rank, whose sums are its input, it only appends the rounds.
void append_sums_on_host(Schedule& s, const Hosts& hosts, const Shards& shards, int chunks,
                         int rank, Slot sums);

// Appends the round in which the owners on each host send their shards of the output to the other
// ranks there. No one sends to `root` (a rank, or -1).
void append_gather_on_host(Schedule& s, const Hosts& hosts, const Shards& shards, int chunks,
                           int rank, int root = -1);

// Which rank of `host` does for chunk `rank` what that rank does on its own host: the one at the
// same place, if there are as many ranks.
int counterpart(const Hosts& hosts, int host, int rank);

// Appends what the direct algorithms begin with: every rank sends chunk p to rank p, and adds up
// the chunk that is its own into `sum`, in rank order and with one rounding for 8- and 16-bit
// floats. `sum` is out(rank) or a scratch slot.
void append_direct_reduction(Schedule& s, int rank, int size, Slot sum);

}  // namespace hccl_like
