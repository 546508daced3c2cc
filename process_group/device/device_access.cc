#include "process_group/device/device_access.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/Event.h>

#include "core/base/error.h"
#include "process_group/device/device_attempt.h"
#include "process_group/device/device_capabilities.h"
#include "process_group/device/host_tensors.h"
#include "process_group/device/plugin_streams.h"

namespace hccl_like {
namespace {

c10::Event record(const c10::Stream& stream) {
  c10::Event event(stream.device_type());
  event.record(stream);
  return event;
}

// Versions of torch without graphs for any device do not have the question.
bool captures(const auto& guard, const c10::Stream& stream) {
  if constexpr (requires { guard.isStreamCapturing(stream); })
    return guard.isStreamCapturing(stream);
  else
    return false;
}

}  // namespace

DeviceAccess::DeviceAccess(c10::Device device, const Device* plugin)
    : device_(device), plugin_(plugin) {
  if (is_host()) {
    direct_ = true;
    return;
  }
  DeviceInfo known;
  if (plugin_ != nullptr) {
    works([&] { known = plugin_->info(device.index()).value(); });
    addresses_ = known.has(HCD_CAP_HOST_DEREF);
    direct_ = addresses_ || (plugin_->can_map() && known.has(HCD_CAP_COHERENT_MAP));
    calls_await_idle_ = known.has(HCD_CAP_CALLS_AWAIT_IDLE);
    const auto guard = guard_of(device);
    native_handles_ = works([&] { guard.getStreamNativeHandle(guard.getStream(device)); });
    stream_ordered_ =
        plugin_->can_queue_functions() && plugin_->can_translate_streams() &&
        works([&] { record(guard.getStream(device)); }) &&
        works([&] { plugin_stream(*plugin_, guard.getStream(device), native_handles_); });
  }
  if (direct_ && stream_ordered_) {  // no more features matter
    has_events_ = true;
    return;
  }
  const DeviceCapabilities& capabilities = capabilities_of(device);
  has_events_ = capabilities.has(Feature::kEvents);
  stream_ordered_ = stream_ordered_ && has_events_;
  // torch streams do not work here: torch may hand one to the caller too, which would deadlock.
  // Blocking copies may wait for the whole device, and so for the call that they belong to.
  copies_beside_streams_ =
      stream_ordered_ && !direct_ && known.has(HCD_CAP_ASYNC_COPY) &&
      plugin_->can_record_events() && plugin_->can_make_streams() && works([&] {
        const auto current = guard_of(device).getStream(device);
        plugin_->make_stream(device.index(), plugin_stream(*plugin_, current, native_handles_))
            .value();
      });
  pins_memory_ = capabilities.has(Feature::kPinnedMemory);
}

std::string DeviceAccess::describe() const {
  if (is_host()) return "host memory";
  return std::string(direct_ ? "memory mapped by its plugin"
                             : "memory copied to and from the host") +
         (!stream_ordered_         ? ", calls wait on the host"
          : large_stream_ordered() ? ", calls in stream order"
                                   : ", small calls in stream order, large calls wait on the host");
}

Alias DeviceAccess::alias(const at::Tensor& tensor) const {
  if (is_host() || addresses_) return Alias(static_cast<std::byte*>(tensor.data_ptr()));
  return Alias(plugin_->map(device_.index(), ref_of(tensor), tensor.nbytes()).value());
}

at::Tensor DeviceAccess::temporary(const at::Tensor& tensor) const {
  const at::AutoDispatchBelowADInplaceOrView unseen;
  const auto options = at::TensorOptions().dtype(tensor.dtype());
  if (is_host()) return empty_mappable(tensor.sizes(), options);
  if (direct_) return at::empty(tensor.sizes(), options.device(device_));
  if (pins_memory_) return at::empty(tensor.sizes(), options.device(c10::kCPU).pinned_memory(true));
  return at::empty(tensor.sizes(), options.device(c10::kCPU));
}

std::optional<ExportedRange> DeviceAccess::share(const at::Tensor& tensor) const {
  if (is_host()) return share_host_tensor(tensor);
  if (plugin_ == nullptr || !plugin_->can_export()) return std::nullopt;
  auto range = plugin_->export_range(device_.index(), ref_of(tensor), tensor.nbytes());
  if (!range.ok()) return std::nullopt;
  return std::move(range).value();
}

c10::Stream DeviceAccess::current_stream() const { return guard_of(device_).getStream(device_); }

// Uses the best wait that the device has. Without one, its copies are synchronous.
bool DeviceAccess::captures() const {
  return hccl_like::captures(*c10::impl::getDeviceGuardImpl(device_.type()), current_stream());
}

void DeviceAccess::synchronize_current_stream() const {
  if (is_host()) return;
  const auto guard = guard_of(device_);
  const c10::Stream current = current_stream();
  if (stream_ordered_) return guard.synchronizeStream(current);
  const DeviceCapabilities& capabilities = capabilities_of(device_);
  if (capabilities.has(Feature::kStreamWaits)) {
    guard.synchronizeStream(current);
  } else if (has_events_) {
    record(current).synchronize();
  } else if (capabilities.has(Feature::kDeviceWaits)) {
    guard.synchronizeDevice(device_.index());
  }
}

void DeviceAccess::synchronize_device() const {
  if (is_host()) return;
  if (!works([&] { guard_of(device_).synchronizeDevice(device_.index()); }))
    synchronize_current_stream();
}

std::string DeviceAccess::why_not_shareable() const {
  const std::string type = c10::DeviceTypeName(device_.type(), /*lower_case=*/true);
  if (plugin_ == nullptr) return "no device plugin is installed for '" + type + "'";
  if (!plugin_->can_export())
    return "the plugin of '" + type + "' lacks ipc_export, ipc_open and ipc_close";
  if (!plugin_->can_open_peers())
    return "the plugin of '" + type + "' lacks peer_open and peer_close";
  return {};
}

ExportedRange DeviceAccess::export_range(void* base, size_t bytes) const {
  return plugin_->export_range(device_.index(), {base, 0}, bytes).value();
}

ImportedRange DeviceAccess::open_peer(const hcd_ipc_handle& handle) const {
  return plugin_->open_peer(device_.index(), handle).value();
}

c10::Stream DeviceAccess::make_stream() const {
  std::optional<c10::Stream> made;
  if (works([&] { made = guard_of(device_).getNewStream(device_); })) return *made;
  return guard_of(device_).getStreamFromGlobalPool(device_);
}

void DeviceAccess::host_function(const c10::Stream& stream, void (*fn)(void*), void* arg) const {
  throw_if(plugin_->host_function(device_.index(), plugin_stream(*plugin_, stream, native_handles_),
                                  fn, arg));
}

}  // namespace hccl_like
