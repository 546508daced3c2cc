#include "core/machine/background_thread.h"

#include <chrono>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/own_thread.h"

namespace hccl_like {
namespace {

constexpr std::chrono::milliseconds kMoment{1};
constexpr int kMoments = 20;

}  // namespace

BackgroundThread::BackgroundThread(std::function<bool()> unfinished, std::function<void()> drive)
    : unfinished_(std::move(unfinished)), drive_(std::move(drive)) {}

void BackgroundThread::wake(bool large) {
  {
    std::lock_guard lock(mutex_);
    if (needed_ || stopping_) return;
    if (!large) {
      may_doze_ = true;
      if (dozes_) {
        soon_ = true;
        return;
      }
    }
    needed_ = true;
    if (!thread_.joinable()) {
      // Must not throw, since the operations are already launched. The flag stays set, so that
      // neither the attempt nor the warning repeats.
      try {
        thread_ = own_thread("goes on with calls that nobody waits for", [this] { loop(); });
      } catch (const Exception& problem) {
        log_warn("calls go on only while the program waits for one: " + problem.error().message);
      }
      return;
    }
  }
  wake_.notify_one();
}

void BackgroundThread::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void BackgroundThread::loop() {
  while (await_need()) drive_();
}

// Dozes, then sleeps; false when stopping.
bool BackgroundThread::await_need() {
  std::unique_lock lock(mutex_);
  const auto woken = [this] { return needed_ || stopping_; };
  dozes_ = std::exchange(may_doze_, false);
  for (int idle = 0; dozes_ && idle < kMoments && !woken(); ++idle) {
    if (wake_.wait_for(lock, kMoment, woken) || !soon_) continue;
    soon_ = false;
    if (unfinished_()) needed_ = true;
    idle = -1;
  }
  dozes_ = false;
  wake_.wait(lock, woken);
  needed_ = soon_ = false;
  return !stopping_;
}

}  // namespace hccl_like
