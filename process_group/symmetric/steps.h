#pragma once
// Work that the host does in the order of a device's streams.
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

// Calls a function while the calling thread does not hold Python's lock.
using Unlocked = std::function<void(const std::function<void()>&)>;

// What a step needs until it has been done.
struct StepNeeds {
  std::vector<at::Tensor> tensors;
  std::vector<Alias> aliases;
};

// Any thread.
class Steps {
 public:
  // Must not throw, nor call torch or the device.
  using Step = std::function<std::optional<Error>()>;

  Steps(const DeviceAccess& access, Unlocked unlocked);
  // Everything queued has been done: the device has been synchronised.
  ~Steps() = default;
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  // Does `step` after what is queued on the calling thread's current stream, before what will be.
  // If the device keeps stream order this returns at once, and what the step returns is lost: it
  // has to leave its error somewhere itself. On all others it blocks, and throws the error.
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
      queued_;  // what the device's thread is done with is freed here, not there
};

}  // namespace hccl_like
