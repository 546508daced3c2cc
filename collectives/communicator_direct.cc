// Large calls in the thread that makes them, as far as the other ranks come soon.
#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

#include "collectives/communicator.h"
#include "collectives/direct/direct_run.h"
#include "core/patience.h"

namespace hccl_like {
namespace {

// One call of so many times its looks at the others' lines.
constexpr uint32_t kTimed = 4;
// Two ranks that exchange so often connect, for the sake of the memory that comes with it.
constexpr uint32_t kMostWithoutCells = 4;

// Makes the steps of a call that is shown; false if other ranks keep it waiting.
bool drive(DirectRun& run, const BoardCall& call, const Config& config, bool patient) {
  Patience patience(config);
  const bool times = call.number % kTimed == 0 && call.write_pace->looks();
  if (!others_are_there(call, patience, patient, times ? call.write_pace : nullptr)) return false;
  run.meet();
  if (run.mismatch() || run.lacks_lane()) return false;
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
    if (drive(run, on_board, engine_.config(), patient)) {
      on_board.board->done(number);
      const bool connects =
          run.misses_cells() && calls_without_cells_.fetch_add(1) == kMostWithoutCells;
      run.end();
      if (connects) engine_.like_wire(*on_board.board->link(1 - on_board.board->rank()));
      return {.over = true, .sequence = number, .rest = nullptr};
    }
  }
  // For when a rank has no lane.
  Plan whole = plan;
  {
    std::lock_guard lock(mutex_);
    choose_messages(call, whole);
  }
  auto operation = std::make_shared<Operation>(shared_from_this(), call, whole, number);
  operation->shown_ = begun;
  if (begun) operation->direct_ = std::make_unique<DirectRun>(std::exchange(run, DirectRun()));
  return {.over = false, .sequence = number, .rest = std::move(operation)};
}

}  // namespace hccl_like
