// Decides when the background thread is needed.
#include <utility>

#include "collectives/engine/engine.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/own_thread.h"

namespace hccl_like {
namespace {

// Waking a thread costs more than a small operation, which usually ends in its first step or in a
// wait within microseconds. So after small work the thread dozes: it polls for more once per
// kMoment. Large work wakes it at once.
constexpr size_t kLargeBytes = 64 << 10;
constexpr std::chrono::milliseconds kMoment{1};
constexpr int kMoments = 20;

}  // namespace

bool Engine::is_large(const std::shared_ptr<Operation>& operation) {
  return operation->bytes_ > kLargeBytes;
}

void Engine::wake_background() {
  {
    std::lock_guard lock(background_mutex_);
    if (background_needed_ || stopping_) return;
    if (large_ == 0) {
      background_may_doze_ = true;
      if (background_dozes_) {
        background_soon_ = true;
        return;
      }
    }
    background_needed_ = true;
    if (!background_.joinable()) {
      // Must not throw, since the operations are already launched. The flag stays set, so that
      // neither the attempt nor the warning repeats.
      try {
        background_ =
            own_thread("goes on with calls that nobody waits for", [this] { background(); });
      } catch (const Exception& problem) {
        log_warn("calls go on only while the program waits for one: " + problem.error().message);
      }
      return;
    }
  }
  background_wake_.notify_one();
}

// Dozes, then sleeps; false when stopping.
bool Engine::await_need() {
  std::unique_lock lock(background_mutex_);
  const auto woken = [this] { return background_needed_ || stopping_; };
  background_dozes_ = std::exchange(background_may_doze_, false);
  for (int idle = 0; background_dozes_ && idle < kMoments && !woken(); ++idle) {
    if (background_wake_.wait_for(lock, kMoment, woken) || !background_soon_) continue;
    background_soon_ = false;
    if (unfinished()) background_needed_ = true;
    idle = -1;
  }
  background_dozes_ = false;
  background_wake_.wait(lock, woken);
  background_needed_ = background_soon_ = false;
  return !stopping_;
}

bool Engine::Turns::take() {
  std::unique_lock driver(engine_.driver_, std::try_to_lock);
  if (!driver) return false;
  const bool moved = engine_.step();
  if (!moved) engine_.sleep(Deadline::never(), /*background=*/false);
  engine_.leave(std::move(driver), /*waited_for=*/false);
  return moved;
}

void Engine::run(Errand& errand) {
  errand.work();
  std::lock_guard lock(turn_mutex_);
  errand.done = true;
  turn_.notify_all();
}

}  // namespace hccl_like
