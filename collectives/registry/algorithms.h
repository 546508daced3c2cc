#pragma once
// The one list of all algorithms.
//
// What a rank may read and write, in chunk numbers that mean the same everywhere:
//
//   collective      reads                       writes
//   allreduce       in(*)                       out(*)
//   reduce_scatter  in(0..size-1)               out(rank)
//   allgather       in(rank)                    out(0..size-1)
//   broadcast       root: in(*)                 out(*), the root too
//   reduce          in(*)                       root: out(*)
//   gather          in(rank)                    root: out(0..size-1)
//   scatter         root: in(0..size-1)         out(rank)
//   alltoall        in(p), which goes to p      out(p), which comes from p
//   barrier         in(0), without bytes        out(0), without bytes
//   send, recv      in(0)                       out(0)
//
// Any number of scratch slots besides. All but alltoall, send and recv may run in place, where
// in(c) and out(c) are the same memory for every chunk c that a rank both reads and writes.
// Allreduce, broadcast and reduce choose the number of chunks themselves; the others have one for
// each rank.
#include <cstdint>
#include <span>
#include <string_view>

#include "collectives/registry/cost.h"
#include "collectives/schedule/collective.h"
#include "collectives/schedule/schedule.h"
#include "collectives/topology/hosts.h"

namespace hccl_like {

struct Algorithm {
  Collective collective;
  std::string_view name;
  // Collectives without a root ignore it; for send and recv it is the peer. Pure.
  Schedule (*make)(int rank, const Hosts& hosts, int root);
  // Whether it works for this many ranks, laid out like this.
  bool (*fits)(const Hosts& hosts);
  // One lap of `bytes` in all chunks together, on two ranks or more (cost.h).
  Cost (*cost)(const Crossings& crossings, uint64_t bytes);
  // All chunks must have the same size, on all ranks.
  bool equal_chunks = false;
  // With more than two ranks every sum is one kReduce step of all ranks' inputs.
  bool sums_at_once = false;
};

// The cost of one lap. Alone, a rank copies its input, whatever the algorithm.
Cost cost_of(const Algorithm& algorithm, const Crossings& crossings, uint64_t bytes);

// All algorithms of a collective, in the order in which `choose` prefers them where they cost the
// same.
std::span<const Algorithm> algorithms(Collective collective);

// nullptr if the collective has no algorithm of that name.
const Algorithm* find_algorithm(Collective collective, std::string_view name);

}  // namespace hccl_like
