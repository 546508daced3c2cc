#pragma once
// What an operation does on its communicator's board: small ones run there, large ones meet there,
// all are compared there.
#include <memory>
#include <vector>

#include "collectives/board/board_call.h"
#include "collectives/call/plan.h"
#include "collectives/same_host/large_call.h"

namespace hccl_like {

// Used by the driver only, and reused.
class SameHostStage {
 public:
  // Nothing is done here.
  void off() { phase_ = Phase::kOff; }
  // `path`: how the data goes; of a call whose messages carry it, the line is only shown and
  // compared with the others'. `shown`: that is done. `begun`: a large call that another thread has
  // shown, null if there is none. `call` is borrowed until end().
  void begin(const BoardCall& call, CallPath path, bool shown, std::unique_ptr<LargeCall> begun);
  // The call is over, or has failed.
  void end();

  // Makes the steps that can be made now; true if any was.
  bool advance();
  // Whether the messages have to wait: the call is not shown yet, or is not theirs to make. A large
  // call becomes theirs when a rank has no staging buffer for it.
  bool holds() const { return phase_ != Phase::kOff && phase_ != Phase::kWatching; }
  bool finished() const { return phase_ == Phase::kFinished; }
  // Whether advance() could make a step: asked before a sleep.
  bool could_advance() const;

  const std::optional<BoardMismatch>& mismatch() const {
    return watch_.mismatch() || !large_ ? watch_.mismatch() : large_->mismatch();
  }
  // Why the call cannot be finished, if it cannot.
  const Error* failure() const {
    return large_ && large_->failure() ? &*large_->failure() : nullptr;
  }
  // While it holds.
  std::vector<int> waiting_for() const;

 private:
  enum class Phase {
    kOff,
    kOpening,   // not known yet whether there is a board
    kWindow,    // the line still holds an earlier call that some rank has not done with
    kReading,   // waits for the lines that are needed
    kMeeting,   // of a large call: waits for all lines
    kMoving,    // of a large call: the data is on its path
    kFinished,  // the output is there
    kWatching,  // the messages go on; the lines are compared when they come
  };

  void show();

  const BoardCall* call_ = nullptr;
  CallPath way_ = CallPath::kMessages;
  Phase phase_ = Phase::kOff;
  BoardWatch watch_;
  std::unique_ptr<LargeCall> large_;  // null before the first
};

}  // namespace hccl_like
