#pragma once
// One seed: ranks that find each other through a store and over sockets, make a few calls and
// leave, and what goes wrong meanwhile.
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/engine/communicator.h"
#include "core/base/error.h"
#include "core/settings/config.h"
#include "tests/fault_simulation/calls.h"
#include "tests/fault_simulation/sockets/blind.h"
#include "tests/fault_simulation/sockets/network.h"
#include "tests/fault_simulation/sockets/store.h"

namespace hccl_like::fault_simulation::sockets {

enum class Fault {
  kKill,      // of a process; its host closes what it had
  kHostLoss,  // nothing comes from its host any more
  kAbsent,    // a rank that never comes
  kStop,      // a rank that does nothing for a while
  kSilence,   // nothing gets from one host to another one for a while, or in both directions
  kCut,       // of a connection
  kCorrupt,   // a byte of a greeting, or of an encrypted message
  kRestart,   // of the job: all ranks are killed, and come again with the store as it is
  kLateStore,
  kForgery,  // of entries in the store, by somebody without the job's secret
  kNetwork,  // one of two networks carries nothing any more
};
inline constexpr int kFaults = 11;

struct Mishap {
  Fault fault{};
  uint64_t step = 0;      // of all processes together
  bool in_calls = false;  // counted from the first call on
  int a = 0, b = 0;       // ranks
  bool both = false;
  Time lasts = 0;
  Time happened = -1;
  bool matters = false;  // not everything that happens does harm
  bool while_meeting = false, while_greeting = false;
};

enum class Phase { kHandshake, kCalling, kLeaving, kOver };

// The outcome of a rank.
struct Report {
  int process = -1;
  Phase phase = Phase::kHandshake;
  Time since = 0;      // when the phase began, or the call
  std::string record;  // that it wrote
  size_t calls = 0;    // that were right
  std::optional<Error> error;
  Phase failed_in{};
  Time failed_at = -1;
};

class Job {
 public:
  explicit Job(uint64_t seed);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Empty, or what should not have been.
  std::string run();
  // How far it got: the same for the same seed.
  uint64_t steps() const { return network_.steps(); }
  // Describes the job of the seed in readable text.
  std::string describe() const;

  // Counts the events of all jobs so far, to show the coverage of the seeds.
  struct Tally {
    uint64_t steps = 0, errors = 0, jobs_with_errors = 0, strangers = 0;
    std::array<uint64_t, kFaults> faults{};
  };
  static Tally tally;

 private:
  void draw_settings();
  void draw_mishaps();
  void begin();
  void arm();
  void happen(Mishap& mishap);
  void kill(int rank);
  void forge();
  Time stopped(int rank) const;

  // rank.cc
  void live(int rank);
  void take_part(int rank);
  void fail(int rank, const Error& error);
  void check_members(int rank, const std::vector<ProcessRecord>& members);
  void make_calls(int rank, Communicator& communicator, Engine& engine);
  void enter(int rank, Phase phase);
  void linger(int rank, Engine& engine);
  // stranger.cc
  void intrude(uint64_t seed);

  // verdict.cc
  void check_time(int rank);
  void judge(int rank);
  bool excused() const;
  void blame(int rank, const std::string& what);
  std::vector<int> culprits(const Mishap& mishap) const;
  // Whether all ranks of several hosts are connected by tcp alone, which replaces what breaks.
  bool replaces() const { return config_.transports == std::vector<std::string>{"tcp"}; }

  const uint64_t seed_;
  Random random_;
  int ranks_;
  std::vector<int> host_;  // by rank; the last host is the strangers'
  Network network_;
  BlindNet blind_net_;
  SlowStore store_;
  Config config_;
  std::chrono::milliseconds meeting_, timeout_;
  std::vector<CallSpec> calls_;
  std::vector<Mishap> mishaps_;
  std::vector<int> strangers_;
  std::vector<Time> late_;
  bool lingers_;
  std::vector<Report> reports_;
  std::optional<uint64_t> first_call_;  // the step at which a rank began it
  std::string blame_;
};

}  // namespace hccl_like::fault_simulation::sockets
