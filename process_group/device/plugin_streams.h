#pragma once
// Translates torch streams and tensor memory into plugin handles.
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "device/device.h"

namespace hccl_like {

// Start of a device tensor's memory.
hcd_ref ref_of(const at::Tensor& tensor);

// Throws if the plugin refuses. `native_handles`: the device guard exposes native stream handles.
hcd_stream plugin_stream(const Device& plugin, const c10::Stream& stream, bool native_handles);

// The streams of one device. Immutable; thread-safe.
class PluginStreams {
 public:
  // Probes the plugin, which may be null.
  PluginStreams(c10::Device device, const Device* plugin);

  // The calling thread's current stream; nothing if the plugin cannot translate it.
  std::optional<hcd_stream> current() const;
  // An event at the current point of that stream; nothing if the plugin has no events.
  std::optional<DeviceEvent> record_current() const;

 private:
  const c10::Device device_;
  const Device* plugin_;  // null: no plugin, or it cannot translate torch streams
  bool native_handles_ = false;
};

}  // namespace hccl_like
