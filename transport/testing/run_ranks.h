#pragma once
// Runs ranks as forked processes, for tests of what only processes can do (die, stop) and for
// benchmarks.
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "transport/network/store.h"

namespace hccl_like {

struct RankOutcome {
  int exit_code = -1;  // -1: it did not end by itself
  int signal = 0;      // what killed it
  bool ok() const { return exit_code == 0; }
  friend bool operator==(const RankOutcome&, const RankOutcome&) = default;
};

struct RunOptions {
  std::chrono::milliseconds timeout{60'000};
  // Kill the others as soon as one fails, or let them find out by themselves.
  bool kill_on_failure = true;
};

// Forks `count` processes that each run body(rank, store) with one store between them, and waits
// for all. body's result is the exit code; an exception is printed and counts as 1. When time is
// over all that still run are killed. The children inherit this process, so it must have no other
// threads that matter to them.
std::vector<RankOutcome> run_ranks(int count,
                                   const std::function<int(int rank, Store& store)>& body,
                                   const RunOptions& options = {});

// True if every rank ended with 0.
bool all_ok(const std::vector<RankOutcome>& outcomes);
// "rank 0: exit code 0, rank 1: killed by signal 9".
std::string to_string(const std::vector<RankOutcome>& outcomes);

}  // namespace hccl_like
