#pragma once
// The board part of an operation: small calls run here, large calls synchronize here, and all calls
// are compared here.
#include <memory>
#include <vector>

#include "collectives/board/board_call.h"
#include "collectives/call/plan.h"
#include "collectives/same_host/large_call.h"

namespace hccl_like {

// Driver only; reusable.
class SameHostStage {
 public:
  void off() { phase_ = Phase::kOff; }
  // `path`: of the data; a call by messages is only published and compared. `shown`: already
  // published. `begun`: large call that another thread published, or null. Borrows `call` until
  // end().
  void begin(const BoardCall& call, CallPath path, bool shown, std::unique_ptr<LargeCall> begun);
  void end();

  // Makes all possible steps; true if any was made.
  bool advance();
  // Whether messages must wait: the call is not published yet, or takes another path. A large call
  // falls back to messages if a rank has no staging buffer.
  bool holds() const { return phase_ != Phase::kOff && phase_ != Phase::kWatching; }
  bool finished() const { return phase_ == Phase::kFinished; }
  // Whether advance() could make a step; checked before sleeping.
  bool could_advance() const;

  const std::optional<BoardMismatch>& mismatch() const {
    return watch_.mismatch() || !large_ ? watch_.mismatch() : large_->mismatch();
  }
  // Null unless the call cannot be finished.
  const Error* failure() const {
    return large_ && large_->failure() ? &*large_->failure() : nullptr;
  }
  // Valid while holds().
  std::vector<int> waiting_for() const;

 private:
  enum class Phase {
    kOff,
    kOpening,    // not known yet whether the board opens
    kWindow,     // some rank has not finished with the slot's previous call
    kReading,    // waits for the slots that are needed
    kHandshake,  // large call: waits for all slots
    kMoving,     // large call: moves data
    kFinished,   // the output is there
    kWatching,   // messages run; slots are compared when they are published
  };

  void show();

  const BoardCall* call_ = nullptr;
  CallPath way_ = CallPath::kMessages;
  Phase phase_ = Phase::kOff;
  BoardWatch watch_;
  std::unique_ptr<LargeCall> large_;  // null before the first
};

}  // namespace hccl_like
