#pragma once
// A call that devices make among themselves, while the engine watches it.
#include <vector>

namespace hccl_like {

// Driver only. No method blocks.
class DeviceCall {
 public:
  virtual ~DeviceCall() = default;
  // Whether this rank's device has begun the call: its time-out counts from then on.
  virtual bool begun() const = 0;
  // Whether the device has completed it, so that its result is there in stream order.
  virtual bool completed() const = 0;
  // Ranks whose devices have not begun the call; all others if all have.
  virtual std::vector<int> waiting_for() const = 0;
};

}  // namespace hccl_like
