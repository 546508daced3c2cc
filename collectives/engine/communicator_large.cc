// Large calls in the caller's thread, if the other ranks arrive soon.
#include <memory>
#include <mutex>
#include <utility>

#include "collectives/engine/communicator.h"
#include "collectives/same_host/large_call.h"
#include "core/machine/backoff.h"

namespace hccl_like {
namespace {

// Advances a published call; false if other ranks delay it.
bool drive(LargeCall& run, const BoardCall& call, Backoff backoff, bool may_wait) {
  if (!others_are_there(call, backoff, may_wait)) return false;
  run.meet();
  if (run.mismatch() || run.lacks_staging()) return false;
  backoff.reset();
  const auto wait = [&] {
    if (backoff.spun()) run.tell();
    return may_wait && backoff.wait();
  };
  while (!run.finished()) {
    if (run.failure()) return false;
    if (run.advance())
      backoff.reset();
    else if (!wait())
      return false;
  }
  return true;
}

}  // namespace

Communicator::Tried Communicator::try_large(const Call& call, BoardCall& on_board, const Plan& plan,
                                            bool may_wait) {
  // Keeps the capacity of its vectors.
  thread_local std::unique_ptr<LargeCall> run;
  if (!run) run = std::make_unique<LargeCall>();
  const uint32_t number = on_board.number;
  on_board.bytes = payload_bytes(call);
  const bool begun = run->begin(on_board);
  if (begun) {
    run->show();
    if (drive(*run, on_board, engine_.backoff(), may_wait)) {
      on_board.board->done(number);
      run->end();
      return {.over = true, .sequence = number, .rest = nullptr};
    }
  }
  // For the case that a rank has no staging buffer.
  Plan whole = plan;
  {
    std::lock_guard lock(mutex_);
    choose_messages(call, whole);
  }
  auto operation = std::make_shared<Operation>(shared_from_this(), call, whole, number);
  operation->shown_ = begun;
  if (begun) operation->large_ = std::move(run);
  return {.over = false, .sequence = number, .rest = std::move(operation)};
}

}  // namespace hccl_like
