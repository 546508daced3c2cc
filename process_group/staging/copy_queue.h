#pragma once
// Copies parts of tensors between device and host for one thread, by the plugin or else torch.
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include "process_group/device/devices.h"
#include "process_group/device/plugin_streams.h"

namespace hccl_like {

// Sets the thread's current device, and an exclusive stream if the device has streams, until
// destroyed. Plugin copies use a separate plugin stream, else that stream, else none.
class CopyQueue {
 public:
  // All arguments must outlive the queue.
  CopyQueue(Devices& devices, const DeviceAccess& access, const PluginStreams& streams);
  ~CopyQueue();
  CopyQueue(const CopyQueue&) = delete;
  CopyQueue& operator=(const CopyQueue&) = delete;

  // Orders the following copies after `begin`.
  void wait_for(const DeviceEvent& begin) const;
  // Both are contiguous and have one type and size. Host memory must not change until wait().
  void to_host(const at::Tensor& host, const at::Tensor& device) const;
  void to_device(const at::Tensor& host, const at::Tensor& device) const;
  bool can_copy_within() const { return plugin_ != nullptr && plugin_->can_copy_within(); }
  // Requires can_copy_within(). The memory must not overlap.
  void within(const at::Tensor& to, const at::Tensor& from) const;
  // Blocks until the copies of this queue are done.
  void wait() const;

  // "copied by its plugin on streams of its own", for logs.
  static std::string describe(const DeviceAccess& access);

 private:
  Devices& devices_;
  const DeviceAccess& access_;
  const Device* const plugin_;
  c10::DeviceGuard device_guard_;
  c10::OptionalStreamGuard stream_guard_;
  DeviceStream made_;      // empty: the plugin makes none
  hcd_stream stream_ = 0;  // plugin stream; 0: copies block
};

}  // namespace hccl_like
