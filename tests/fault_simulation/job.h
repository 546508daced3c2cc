#pragma once
// One seed: some ranks, what they call, what goes wrong, and what must come of it.
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/engine/communicator.h"
#include "collectives/engine/engine.h"
#include "tests/fault_simulation/calls.h"
#include "tests/fault_simulation/seat.h"
#include "tests/fault_simulation/world.h"

namespace hccl_like::fault_simulation {

enum class Fault { kCrash, kStop, kCut, kSilence, kAbort, kDisagree, kLeave };

struct Mishap {
  Fault fault{};
  uint64_t turn = 0;  // of all ranks together, after which it happens
  int a = 0, b = 0;
  int group = 0;
  Time lasts = 0;
  bool flag = false;  // at once; both directions
  Time happened = -1;
};

class Job {
 public:
  explicit Job(uint64_t seed);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Empty, or what should not have been.
  std::string run();
  // Describes the job of the seed in readable text.
  std::string describe() const;

  // Counts the events of all jobs so far, to show the coverage of the seeds.
  struct Tally {
    uint64_t turns = 0, calls = 0, errors = 0, jobs_with_errors = 0;
  };
  static Tally tally;

 private:
  void make_calls();
  void make_mishaps();
  void make_seats();
  void happen(Mishap& mishap);
  void turn(int rank);
  bool begin_task(int rank, int group);
  bool end_tasks(int rank, int group);
  void judge(int rank, int group, const Operation& operation);
  void leave(int rank);
  bool concerns(const Mishap& mishap, int group) const;
  bool may_fail(int group) const;
  bool may_time_out(int group) const;
  bool held_up(int group) const;
  bool settled() const;
  void blame(int rank, int group, const std::string& what);

  const uint64_t seed_;
  World world_;
  Random random_;
  int ranks_;
  std::array<std::vector<int>, kGroups> members_;  // the second may be empty
  std::array<std::vector<CallSpec>, kGroups> calls_;
  ForcedAlgorithms algorithms_;
  Config config_;
  std::vector<Mishap> mishaps_;
  std::vector<std::unique_ptr<Seat>> seats_;
  uint64_t turns_ = 0;
  bool any_error_ = false;
  std::string blame_;
};

}  // namespace hccl_like::fault_simulation
