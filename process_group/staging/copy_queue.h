#pragma once
// How one thread copies parts of tensors between a device and the host: by the device's plugin
// where it has one, else by torch.
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include "process_group/device/devices.h"
#include "process_group/device/plugin_streams.h"

namespace hccl_like {

// Makes the device, and a stream of the thread's own if there are any, the thread's current ones
// for as long as it lives. A plugin's copies take a stream of its own beside that one, or that one,
// or, where it knows neither, none.
class CopyQueue {
 public:
  // All must outlive it.
  CopyQueue(Devices& devices, const DeviceAccess& access, const PluginStreams& streams);
  ~CopyQueue();
  CopyQueue(const CopyQueue&) = delete;
  CopyQueue& operator=(const CopyQueue&) = delete;

  // What follows comes after what led to `begin`.
  void wait_for(const DeviceEvent& begin) const;
  // Both are contiguous, of one type and size. Host memory stays as it is until wait().
  void to_host(const at::Tensor& host, const at::Tensor& device) const;
  void to_device(const at::Tensor& host, const at::Tensor& device) const;
  // The same within the device, by a plugin that can; the memory is apart.
  void within(const at::Tensor& to, const at::Tensor& from) const;
  // Blocks until the copies that this thread made are done.
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
  hcd_stream stream_ = 0;  // the plugin's; 0: its copies block
};

}  // namespace hccl_like
