// Large calls in the thread that makes them, as far as the other ranks come soon.
#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "collectives/communicator.h"
#include "collectives/direct/direct_run.h"
#include "core/patience.h"

namespace hccl_like {
namespace {

// One call of so many times its looks at the others' lines.
constexpr uint32_t kTimed = 4;

// Makes the steps of a call that is shown; false if other ranks keep it waiting.
bool drive(DirectRun& run, const BoardCall& call, Patience patience, bool patient) {
  using Clock = std::chrono::steady_clock;
  const bool times = call.number % kTimed == 0 && call.write_pace->looks();
  for (int rank = 0; rank < call.board->size(); ++rank) {
    const bool timed = times && rank != call.board->rank();
    Clock::time_point begin;
    const auto look = [&] {
      if (timed) begin = Clock::now();
      return call.board->line(rank, call.number);
    };
    const Board::Line* line;
    while ((line = look()) == nullptr)
      if (!patient || !patience.wait()) return false;
    if (timed) call.write_pace->looked(Clock::now() - begin);
    if (line->fingerprint != call.fingerprint) return false;
  }
  run.meet();
  if (run.mismatch()) return false;
  patience.reset();
  const auto wait = [&] {
    if (patience.spun()) run.tell();
    return patient && patience.wait();
  };
  while (!run.finished()) {
    if (run.failure()) return false;
    if (run.advance())
      patience.reset();
    else if (!wait())
      return false;
  }
  return true;
}

}  // namespace

Communicator::Tried Communicator::try_direct(const Call& call, BoardCall& on_board,
                                             const Plan& plan, bool patient) {
  // Kept for its vectors.
  thread_local DirectRun run;
  const uint32_t number = on_board.number;
  on_board.bytes = payload_bytes(call);
  const bool begun = run.begin(on_board);
  if (begun) {
    run.show();
    if (drive(run, on_board, Patience(engine_.config()), patient)) {
      on_board.board->done(number);
      run.end();
      return {.over = true, .sequence = number, .rest = nullptr};
    }
  }
  auto operation = std::make_shared<Operation>(shared_from_this(), call, plan, number);
  operation->shown_ = begun;
  if (begun) operation->direct_ = std::make_unique<DirectRun>(std::exchange(run, DirectRun()));
  return {.over = false, .sequence = number, .rest = std::move(operation)};
}

}  // namespace hccl_like
