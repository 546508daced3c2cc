#pragma once
// Host work in the order of a device's streams.
#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/base/error.h"
#include "process_group/device/device_access.h"

namespace hccl_like {

// Calls a function with the GIL released.
using Unlocked = std::function<void(const std::function<void()>&)>;

// Resources held until the step is done.
struct StepNeeds {
  std::vector<at::Tensor> tensors;
  std::vector<Alias> aliases;
};

// Thread-safe.
class Steps {
 public:
  // Must not throw and must not call torch or the device.
  using Step = std::function<std::optional<Error>()>;

  Steps(const DeviceAccess& access, Unlocked unlocked);
  // Synchronise the device first: no step may be queued.
  ~Steps() = default;
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  // Runs `step` in current-stream order. Stream-ordered devices return at once and drop the step's
  // error, which the step must store itself. Other devices block and throw the error.
  void run(Step step, StepNeeds needs = {});

 private:
  struct Queued {
    Step step;
    StepNeeds needs;
    std::atomic<bool> done{false};
  };
  static void run_queued(void* queued);
  void reap();

  const DeviceAccess& access_;
  const Unlocked unlocked_;
  std::mutex mutex_;
  std::list<std::unique_ptr<Queued>>
      queued_;  // freed by reap() and the destructor, not on the device's thread
};

}  // namespace hccl_like
