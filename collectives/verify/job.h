#pragma once
// All ranks of one call in one process: the input of check, prove and simulate.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "collectives/registry/algorithms.h"
#include "collectives/schedule/schedule.h"

namespace hccl_like {

struct Job {
  Collective collective = Collective::kBarrier;
  int root = 0;  // for a message: the sender
  std::vector<Schedule> ranks;
  bool equal_chunks = false;  // see Algorithm

  int size() const { return static_cast<int>(ranks.size()); }
};

// Not for send and recv: their ranks run different algorithms.
Job make_job(const Algorithm& algorithm, const Hosts& hosts, int root = 0);
// One message in a job of `size` ranks.
Job make_message(int size, int from, int to);

// Access rules of the collective (table in algorithms.h).
inline bool may_read_input(const Job& job, int rank, uint32_t chunk) {
  if (is_point_to_point(job.collective))
    return job.collective == Collective::kSend && rank == job.root;
  const Semantics meaning = semantics(job.collective);
  if (meaning.input == Chunking::kOwn) return chunk == static_cast<uint32_t>(rank);
  return !meaning.from_root || rank == job.root;
}

inline bool may_write_output(const Job& job, int rank, uint32_t chunk) {
  if (job.collective == Collective::kSend) return rank != job.root;
  const Semantics meaning = semantics(job.collective);
  if (meaning.output == Chunking::kOwn) return chunk == static_cast<uint32_t>(rank);
  return !meaning.to_root || rank == job.root;
}

// Equal exactly for chunks that have the same size in every call: chunks of equal number. In
// alltoall only the two ranks of a chunk know its size.
inline std::pair<uint32_t, uint32_t> size_of_chunk(const Job& job, int rank, Slot slot) {
  if (job.equal_chunks) return {0, 0};
  if (slot.buffer == Buffer::kScratch)
    slot = job.ranks[static_cast<size_t>(rank)].scratch_like()[slot.index];
  if (job.collective != Collective::kAllToAll) return {slot.index, 0};
  const auto me = static_cast<uint32_t>(rank);
  return slot.buffer == Buffer::kInput ? std::pair(me, slot.index) : std::pair(slot.index, me);
}

// True if in(c) and out(c) may be the same memory.
bool may_run_in_place(Collective collective);

// Number of a slot's memory on a rank: inputs first, then outputs unless they are the inputs, then
// scratch.
constexpr size_t cell_of(Slot slot, size_t chunks, bool in_place) {
  if (slot.buffer == Buffer::kScratch) return 2 * chunks + slot.index;
  return slot.buffer == Buffer::kOutput && !in_place ? chunks + slot.index : slot.index;
}

// Pairs sends with receives. Global number of a step: first[rank] + its number in the schedule.
struct Matching {
  static constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> first;
  std::vector<uint32_t> partner;  // kNone for local steps
  std::string fault;              // "" if every message has both ends
};
Matching match(const Job& job);

}  // namespace hccl_like
