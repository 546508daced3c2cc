#include "transport/testing/run_ranks.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>

#include "core/base/deadline.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "transport/testing/local_store.h"

namespace hccl_like {
namespace {

[[noreturn]] void be_rank(int rank, const std::function<int(int, Store&)>& body, Store& store,
                          pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  set_log_rank(rank);
  int code = 1;
  try {
    code = body(rank, store);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "rank %d: %s\n", rank, exception.what());
  }
  std::fflush(nullptr);
  ::_exit(code);
}

class Family {
 public:
  ~Family() {
    kill_all();
    for (size_t rank = 0; rank < pids_.size(); ++rank) reap(rank, 0);
  }
  void add(pid_t pid) {
    pids_.push_back(pid);
    outcomes_.emplace_back();
  }
  void kill_all() {
    for (const pid_t pid : pids_)
      if (pid > 0) ::kill(pid, SIGKILL);
  }
  // True if any of them runs on.
  bool look() {
    bool running = false;
    for (size_t rank = 0; rank < pids_.size(); ++rank) running |= !reap(rank, WNOHANG);
    return running;
  }
  bool any_failed() const {
    for (size_t rank = 0; rank < pids_.size(); ++rank)
      if (pids_[rank] < 0 && !outcomes_[rank].ok()) return true;
    return false;
  }
  const std::vector<RankOutcome>& outcomes() const { return outcomes_; }

 private:
  bool reap(size_t rank, int flags) {
    if (pids_[rank] < 0) return true;
    int status = 0;
    if (::waitpid(pids_[rank], &status, flags) != pids_[rank]) return false;
    if (WIFEXITED(status)) outcomes_[rank].exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) outcomes_[rank].signal = WTERMSIG(status);
    pids_[rank] = -1;
    return true;
  }
  std::vector<pid_t> pids_;
  std::vector<RankOutcome> outcomes_;
};

}  // namespace

std::vector<RankOutcome> run_ranks(int count, const std::function<int(int, Store&)>& body,
                                   const RunOptions& options) {
  ForkStore store;
  Family family;
  const Deadline deadline = Deadline::after(options.timeout);
  const pid_t parent = ::getpid();
  std::fflush(nullptr);
  for (int rank = 0; rank < count; ++rank) {
    const pid_t pid = ::fork();
    if (pid < 0) throw_system("cannot fork rank " + std::to_string(rank));
    if (pid == 0) be_rank(rank, body, store, parent);
    family.add(pid);
  }
  while (family.look()) {
    if (deadline.expired() || (options.kill_on_failure && family.any_failed())) family.kill_all();
    ::usleep(500);
  }
  return family.outcomes();
}

bool all_ok(const std::vector<RankOutcome>& outcomes) {
  return std::all_of(outcomes.begin(), outcomes.end(),
                     [](const RankOutcome& one) { return one.ok(); });
}

std::string to_string(const std::vector<RankOutcome>& outcomes) {
  std::string text;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const RankOutcome& one = outcomes[rank];
    text += (rank == 0 ? "rank " : ", rank ") + std::to_string(rank) +
            (one.signal != 0 ? ": killed by signal " + std::to_string(one.signal)
                             : ": exit code " + std::to_string(one.exit_code));
  }
  return text;
}

}  // namespace hccl_like
