#pragma once
// The list of all algorithms.
//
// The chunks that a rank may read and write (chunk numbers are equal on all ranks):
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
// Plus any number of scratch slots. All but alltoall, send and recv may run in place: in(c) and
// out(c) are the same memory for every chunk c that a rank both reads and writes. Allreduce,
// broadcast and reduce choose their number of chunks; the others have one for each rank.
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/registry/cost.h"
#include "collectives/schedule/collective.h"
#include "collectives/schedule/schedule.h"
#include "collectives/topology/hosts.h"

namespace hccl_like {

// A user's schedules for one layout of ranks, which take the place of an algorithm's functions.
struct OwnSchedules {
  Hosts hosts = 1;
  std::vector<std::vector<Schedule>> by_root;  // by rank; one entry if there is no root
  Cost chunk_cost;                             // of one slice, in which `bytes` counts chunks
  uint64_t digest = 0;                         // equal on all ranks that made the same
};

struct Algorithm {
  Collective collective;
  std::string_view name;
  // Pure. `root`: ignored by collectives without a root; the peer for send and recv.
  Schedule (*make)(int rank, const Hosts& hosts, int root) = nullptr;
  // True if the algorithm supports this layout of ranks.
  bool (*fits)(const Hosts& hosts) = nullptr;
  // The cost of one slice with `bytes` in all chunks together, on at least two ranks (cost.h).
  Cost (*cost)(const Crossings& crossings, uint64_t bytes) = nullptr;
  // All chunks must have the same size, on all ranks.
  bool equal_chunks = false;
  // With more than two ranks every sum is one kReduce step over all ranks' inputs.
  bool sums_at_once = false;
  const OwnSchedules* own = nullptr;  // then the functions are null
};

// The same for algorithms of any origin.
Schedule schedule_of(const Algorithm& algorithm, int rank, const Hosts& hosts, int root);
bool fits(const Algorithm& algorithm, const Hosts& hosts);
// Equal on all ranks that use the same one, and different for others of the same collective.
uint64_t key_of(const Algorithm& algorithm);
// The cost of one slice. A single rank copies its input.
Cost cost_of(const Algorithm& algorithm, const Crossings& crossings, uint64_t bytes);

// All algorithms of a collective. On equal cost, `choose` prefers the earlier one.
std::span<const Algorithm> algorithms(Collective collective);

// nullptr if the collective has no algorithm of that name.
const Algorithm* find_algorithm(Collective collective, std::string_view name);

}  // namespace hccl_like
