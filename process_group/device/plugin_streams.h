#pragma once
// What a plugin calls torch's streams and the memory of torch's tensors.
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "device/device.h"

namespace hccl_like {

// Where the memory of a device's tensor begins.
hcd_ref ref_of(const at::Tensor& tensor);

// Throws if the plugin refuses. `native_handles`: whether the device's guard has handles of its own
// streams.
hcd_stream plugin_stream(const Device& plugin, const c10::Stream& stream, bool native_handles);

// The streams of one device. Immutable once made; any thread.
class PluginStreams {
 public:
  // `plugin` may be null. Tries what it can.
  PluginStreams(c10::Device device, const Device* plugin);

  // The calling thread's current stream; nothing if the plugin can't tell.
  std::optional<hcd_stream> current() const;
  // The point that it has come to; nothing where the plugin makes none.
  std::optional<DeviceEvent> record_current() const;

 private:
  const c10::Device device_;
  const Device* plugin_;  // null: there is none, or it knows no streams of torch's
  bool native_handles_ = false;
};

}  // namespace hccl_like
