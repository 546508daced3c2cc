#pragma once
// Access to one torch device: host-addressable memory and stream-ordered host functions.
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "device/device.h"

namespace hccl_like {

// Host mapping of a tensor's memory. Must not outlive the tensor.
class Alias {
 public:
  explicit Alias(std::byte* address) : address_(address) {}
  explicit Alias(MappedRange range) : range_(std::move(range)), address_(range_.data()) {}

  std::byte* address() const { return address_; }

 private:
  MappedRange range_;  // empty if there is no mapping to release
  std::byte* address_;
};

// Two properties describe a device:
//
// - direct(): host code addresses the memory (host tensors, plugins with coherent mappings).
//   Otherwise torch or the plugin copies data through host tensors.
// - stream_ordered(): host functions run in stream order, so calls do not block the host.
//   Otherwise a call waits for the current stream, and work.wait() waits for the result.
//
// A device without a plugin has neither and uses torch interfaces only. Immutable; thread-safe.
class DeviceAccess {
 public:
  // Probes the device. `plugin` may be null except for the host.
  DeviceAccess(c10::Device device, const Device* plugin);

  c10::Device device() const { return device_; }
  bool is_host() const { return device_.is_cpu(); }
  bool direct() const { return direct_; }
  bool stream_ordered() const { return stream_ordered_; }
  // Whether large calls keep stream order too. Not if calls of the device's runtime wait until
  // streams are idle (HCD_CAP_CALLS_AWAIT_IDLE): host threads have a part in large calls.
  bool large_stream_ordered() const { return stream_ordered_ && !calls_await_idle_; }
  // Requires stream_ordered() and not direct(). The plugin copies on its own streams while the
  // caller's stream waits, so large calls can run in slices.
  bool copies_beside_streams() const { return copies_beside_streams_; }
  // Without events, completing a Future that carries the device would throw.
  bool has_events() const { return has_events_; }
  // Text for logs: "memory mapped by its plugin, calls in stream order".
  std::string describe() const;

  // Requires direct() and a contiguous, non-empty tensor.
  Alias alias(const at::Tensor& tensor) const;
  // Uninitialised contiguous host-addressable tensor like `tensor`: on the device if direct(), else
  // on the host. Pinned and peer-mappable if possible. Call under the guard of the stream that uses
  // it.
  at::Tensor temporary(const at::Tensor& tensor) const;

  // The plugin and its index of the device; null without a plugin.
  const Device* plugin() const { return plugin_; }
  int plugin_index() const { return is_host() ? 0 : device_.index(); }
  // The range by which local peers can map `tensor`, which is contiguous, not empty and on this
  // device. Returns nothing if they cannot. Cheap enough for every call.
  std::optional<ExportedRange> share(const at::Tensor& tensor) const;

  // The calling thread's current stream. Not for the host.
  c10::Stream current_stream() const;
  // Whether that stream captures a graph: its work is recorded and not done.
  bool captures() const;
  // Blocks until the current stream is idle. No-op on the host.
  void synchronize_current_stream() const;
  // An unshared stream if the device can make one.
  c10::Stream make_stream() const;
  // Blocks until the device is idle. No-op on the host.
  void synchronize_device() const;

  // Why other processes cannot map memory of this device; empty if they can. Not for the host.
  std::string why_not_shareable() const;
  // Requires shareable memory. `base` comes from torch's allocator for the device. See Device.
  ExportedRange export_range(void* base, size_t bytes) const;
  ImportedRange open_peer(const hcd_ipc_handle& handle) const;

  // Requires stream_ordered(). Queues fn(arg); `fn` may block and must not call torch.
  void host_function(const c10::Stream& stream, void (*fn)(void*), void* arg) const;

 private:
  c10::Device device_;
  const Device* plugin_;
  bool direct_ = false;
  bool addresses_ = false;  // host code can dereference torch's device pointers
  bool has_events_ = false;
  bool stream_ordered_ = false;
  bool calls_await_idle_ = false;
  bool copies_beside_streams_ = false;
  bool native_handles_ = false;
  bool pins_memory_ = false;
};

}  // namespace hccl_like
