#pragma once
// The steps of all ranks of a large job by round, a few rounds at a time.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/proof/large_job.h"

namespace hccl_like {

// A step, with the numbers of its memory cells.
struct PackedStep {
  uint32_t peer;
  uint32_t kind : 3;
  uint32_t count : 29;  // kReduce: of sources
  uint32_t a;           // kReduce: first in the round's list of sources
  uint32_t dst;
  uint32_t sizes;  // of the message's chunks: equal numbers for equal lists of sizes

  Step::Kind what() const { return static_cast<Step::Kind>(kind); }

  // When a message reaches its receiver: in place of the cells of a send that has been run.
  void set_arrival_ps(uint64_t at) {
    a = static_cast<uint32_t>(at >> 32), dst = static_cast<uint32_t>(at);
  }
  uint64_t arrival_ps() const { return uint64_t{a} << 32 | dst; }
};

struct LargeRound {
  std::vector<PackedStep> steps;
  std::vector<uint32_t> sources;
  std::vector<uint32_t> begin;  // by rank, then the end
};

// A message on its way.
struct Arrival {
  uint32_t step;  // of the round: the send
  uint32_t sender : 31;
  uint32_t adds : 1;  // its receiver adds it up
};

// Makes the schedules of a job as often as its memory takes. Its rounds are those from first() on,
// with the steps of the ranks [from(), to()), and what others send to them.
class LargeRounds {
 public:
  LargeRounds(const LargeJob& job, size_t memory);

  // Makes all schedules, looks at each of them alone, and keeps the first rounds, as many as fit:
  // of all ranks, possibly none. Returns a fault, or "".
  std::string begin();
  // The next rounds, or the next part of the ranks of one round that is too large. False at the
  // end of the job.
  bool next();

  std::vector<LargeRound>& rounds() { return rounds_; }
  size_t first() const { return first_; }
  uint32_t from() const { return from_; }
  uint32_t to() const { return to_; }
  bool of_all_ranks() const { return parts_ == 1; }

  // The job without schedules.
  const Job& facts() const { return facts_; }
  uint32_t chunks() const { return chunks_; }
  uint32_t scratch(uint32_t rank) const { return scratch_[rank]; }
  uint64_t steps() const { return steps_; }
  uint64_t passes() const { return passes_; }

 private:
  // Of the steps of a round, of all ranks.
  struct Need {
    uint64_t steps = 0;
    uint64_t sources = 0;
  };

  uint32_t make_ranks(uint32_t begin);
  std::string look_at(uint32_t rank);
  std::string lost_input(uint32_t rank);
  void pack_ranks(uint32_t begin, uint32_t until);
  void pack(LargeRound& round, uint32_t rank, const Step& step);
  uint32_t sizes_of(uint32_t rank, Slot slot, uint32_t count);
  void end_rounds();
  void reserve(LargeRound& round, const Need& need) const;
  uint64_t bytes_of(const Need& round) const {
    return round.steps * sizeof(PackedStep) + (round.sources + size_) * sizeof(uint32_t);
  }

  const LargeJob& job_;
  const size_t memory_;
  const uint32_t size_;
  Job facts_;  // has the schedules of the few ranks that are looked at
  uint32_t chunks_ = 0;
  std::vector<uint32_t> scratch_;
  std::vector<Need> needs_;  // by round
  std::vector<LargeRound> rounds_;
  size_t first_ = 0;
  uint32_t from_ = 0, to_;
  uint32_t part_ = 0, parts_ = 1;
  std::map<std::vector<uint32_t>, uint32_t> size_lists_;
  std::vector<bool> written_;
  uint64_t steps_ = 0, passes_ = 0;
};

}  // namespace hccl_like
