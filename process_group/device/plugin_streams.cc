#include "process_group/device/plugin_streams.h"

#include "core/base/error.h"
#include "process_group/device/device_attempt.h"
#include "process_group/device/device_capabilities.h"

namespace hccl_like {

hcd_ref ref_of(const at::Tensor& tensor) {
  const auto offset = static_cast<uint64_t>(tensor.storage_offset()) * tensor.itemsize();
  return {tensor.storage().unsafeGetStorageImpl()->mutable_data(), offset};
}

hcd_stream plugin_stream(const Device& plugin, const c10::Stream& stream, bool native_handles) {
  void* native = native_handles ? guard_of(stream.device()).getStreamNativeHandle(stream) : nullptr;
  return plugin.stream_from_torch(stream.device_index(), stream.id(), native).value();
}

PluginStreams::PluginStreams(c10::Device device, const Device* plugin)
    : device_(device), plugin_(plugin) {
  if (plugin_ == nullptr) return;
  const auto guard = guard_of(device_);
  native_handles_ = works([&] { guard.getStreamNativeHandle(guard.getStream(device_)); });
  const bool translates = plugin_->can_translate_streams() && works([&] {
                            plugin_stream(*plugin_, guard.getStream(device_), native_handles_);
                          });
  if (!translates) plugin_ = nullptr;
}

std::optional<hcd_stream> PluginStreams::current() const {
  if (plugin_ == nullptr) return std::nullopt;
  return plugin_stream(*plugin_, guard_of(device_).getStream(device_), native_handles_);
}

std::optional<DeviceEvent> PluginStreams::record_current() const {
  if (plugin_ == nullptr || !plugin_->can_record_events()) return std::nullopt;
  return plugin_->record(device_.index(), *current()).value();
}

}  // namespace hccl_like
