#include "process_group/symmetric/steps.h"

#include <atomic>
#include <utility>

#include "core/base/result.h"

namespace hccl_like {

Steps::Steps(const DeviceAccess& access, Unlocked unlocked)
    : access_(access), unlocked_(std::move(unlocked)) {}

void Steps::run(Step step, StepNeeds needs) {
  if (access_.stream_ordered()) {
    std::lock_guard lock(mutex_);
    reap();
    auto queued = std::make_unique<Queued>();
    queued->step = std::move(step);
    queued->needs = std::move(needs);
    access_.host_function(access_.current_stream(), run_queued, queued.get());
    queued_.push_back(std::move(queued));
    return;
  }
  std::optional<Error> error;
  unlocked_([&] {
    access_.synchronize_current_stream();
    error = step();
  });
  throw_if(error);
}

void Steps::run_queued(void* queued) {
  auto& self = *static_cast<Queued*>(queued);
  (void)self.step();
  self.done.store(true, std::memory_order_release);
}

void Steps::reap() {
  queued_.remove_if(
      [](const auto& queued) { return queued->done.load(std::memory_order_acquire); });
}

}  // namespace hccl_like
