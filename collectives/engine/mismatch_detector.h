#pragma once
// Detects and reports ranks that make different calls.
//
// Most mismatches show on the board, or in a message of another call than expected. But such ranks
// may each wait without any message, for example two that both act as the root of a reduce. So a
// rank that has waited for a while reports its call to the ranks that it waits for, and each of
// them compares that with its own call of that number. The waiting rank also checks messages that
// no receive expects.
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "collectives/call/disagreement.h"
#include "collectives/engine/execution.h"
#include "collectives/engine/group_table.h"
#include "core/base/deadline.h"
#include "transport/link/link.h"

namespace hccl_like {

class Communicator;

// Driver only.
class MismatchDetector {
 public:
  // All belong to the engine.
  struct Access {
    const GroupTable& groups;
    const Executions& active;
    // Fails the group on all ranks; changes `active`.
    std::function<void(Communicator&, const Error&)> fail;
    // The driver must look at the links before it sleeps.
    std::function<void()> keep_awake;
    bool call_sites = false;  // fingerprints tell where a call was made
  };
  explicit MismatchDetector(Access access) : engine_(std::move(access)) {}

  // A message of another call than the one that it belongs to.
  void on_message(int peer, Communicator& communicator, const Link::Mismatch& mismatch);
  // execution.mismatch() is set.
  void on_board(const Execution& execution);
  // A peer reports the call that it waits in.
  void on_report(Link& link, const CallNotice& call);
  // Of long waits: reports this rank's calls and compares what peers have reported. Cheap if called
  // more often than needed.
  void look();
  // Reports a mismatch whose cause is not identified yet, in place of another failure of the group.
  // False if there is none.
  bool report_pending(Communicator& communicator);

 private:
  static constexpr std::string_view kUnseen =
      "they differ in the sizes of its chunks, in its algorithm, or in the root of a call before "
      "it";
  struct Disagreement {
    uint32_t sequence;
    uint64_t number;  // shown to users
    Claim mine, theirs;
    std::string_view unseen = kUnseen;
  };
  // Caused by a call that is not identified yet; reported as is after `until`.
  struct Pending {
    uint64_t communicator;
    Disagreement disagreement;
    Deadline until;
  };
  // The last call that a peer reported to be in, kept until this rank has made that call.
  struct Report {
    uint64_t communicator;
    int rank;
    CallNotice call;
  };

  void report(Communicator& communicator, const Disagreement& disagreement);
  void ask_about(Communicator& communicator, Disagreement disagreement);
  void report_expired();
  void send_reports();
  void compare_reports();
  std::optional<Disagreement> find_stray(const Communicator& communicator) const;

  const Access engine_;
  std::vector<Report> reports_;
  std::vector<Pending> pending_;  // at most one per communicator
  Deadline::Clock::time_point next_look_{};
};

}  // namespace hccl_like
