#include "process_group/staging/copy_queue.h"

#include "core/base/error.h"
#include "process_group/device/device_capabilities.h"

namespace hccl_like {

CopyQueue::CopyQueue(Devices& devices, const DeviceAccess& access, const PluginStreams& streams)
    : devices_(devices), access_(access), plugin_(access.plugin()), device_guard_(access.device()) {
  if (capabilities_of(access.device()).has(Feature::kStreams))
    stream_guard_.reset_stream(devices.take_stream(access));
  if (plugin_ == nullptr) return;
  stream_ = streams.current().value_or(0);
  if (!plugin_->can_make_streams()) return;
  auto made = plugin_->make_stream(access.plugin_index(), stream_);
  if (!made.ok()) {
    if (access.stream_ordered()) throw Exception(made.error());  // a torch stream might deadlock
    return;  // allowed without a stream to derive from
  }
  made_ = std::move(made).value();
  stream_ = made_.get();
}

CopyQueue::~CopyQueue() {
  if (stream_guard_.current_stream()) devices_.give_back(*stream_guard_.current_stream());
}

void CopyQueue::wait_for(const DeviceEvent& begin) const {
  const int index = access_.plugin_index();
  if (plugin_->passed(index, begin).value()) return;  // nothing to queue, in the common case
  throw_if(stream_ == 0 ? plugin_->synchronize(index, begin)
                        : plugin_->wait_for_event(index, stream_, begin));
}

void CopyQueue::to_host(const at::Tensor& host, const at::Tensor& device) const {
  if (plugin_ == nullptr) {
    host.copy_(device);
    return;
  }
  throw_if(plugin_->copy_to_host(access_.plugin_index(), host.data_ptr(), ref_of(device),
                                 device.nbytes(), stream_));
}

void CopyQueue::to_device(const at::Tensor& host, const at::Tensor& device) const {
  if (plugin_ == nullptr) {
    device.copy_(host);
    return;
  }
  throw_if(plugin_->copy_from_host(access_.plugin_index(), ref_of(device), host.data_ptr(),
                                   device.nbytes(), stream_));
}

void CopyQueue::within(const at::Tensor& to, const at::Tensor& from) const {
  throw_if(
      plugin_->copy_within(access_.plugin_index(), ref_of(to), ref_of(from), to.nbytes(), stream_));
}

// Synchronises even after blocking torch copies: a device may return from them too early.
void CopyQueue::wait() const {
  if (plugin_ == nullptr) return access_.synchronize_current_stream();
  if (stream_ != 0) throw_if(plugin_->synchronize(access_.plugin_index(), stream_));
}

std::string CopyQueue::describe(const DeviceAccess& access) {
  const Device* const plugin = access.plugin();
  if (plugin == nullptr) return "copied by torch";
  return std::string("copied by its plugin") +
         (plugin->can_make_streams()        ? " on streams of its own"
          : plugin->can_translate_streams() ? " on torch's streams"
                                            : "");
}

}  // namespace hccl_like
