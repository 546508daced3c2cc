#pragma once
// All ranks of one call, as check, prove and simulate see them: the whole job in one process.
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/registry/algorithms.h"
#include "collectives/schedule/schedule.h"

namespace hccl_like {

struct Job {
  Collective collective = Collective::kBarrier;
  int root = 0;  // of a message: the sender
  std::vector<Schedule> ranks;
  bool equal_chunks = false;  // see Algorithm

  int size() const { return static_cast<int>(ranks.size()); }
};

// Not for send and recv, whose ranks run different algorithms.
Job make_job(const Algorithm& algorithm, const Hosts& hosts, int root = 0);
// One message of a job of `size` ranks.
Job make_message(int size, int from, int to);

// What the collective lets a rank read and write (the table in algorithms.h).
bool may_read_input(const Job& job, int rank, uint32_t chunk);
bool may_write_output(const Job& job, int rank, uint32_t chunk);
// Whether in(c) and out(c) may be the same memory.
bool may_run_in_place(Collective collective);

// Which send meets which receive. Steps of all ranks are numbered through: first[rank] + the number
// of the step in its rank's schedule.
struct Matching {
  static constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> first;
  std::vector<uint32_t> partner;  // kNone for local steps
  std::string fault;              // "" if every message has both its ends
};
Matching match(const Job& job);

}  // namespace hccl_like
