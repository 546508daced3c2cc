#pragma once
// How one torch device is reached: whether host code may address its memory, and whether its
// streams can run host code.
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "device/device.h"

namespace hccl_like {

// Host code's view of a tensor's memory. It ends with this object, which must not outlive the
// tensor.
class Alias {
 public:
  explicit Alias(std::byte* address) : address_(address) {}
  explicit Alias(MappedRange range) : range_(std::move(range)), address_(range_.data()) {}

  std::byte* address() const { return address_; }

 private:
  MappedRange range_;  // empty if there is nothing to end
  std::byte* address_;
};

// There are three kinds, told apart by two properties:
//   direct            host code addresses the memory (CPU tensors; a plugin that maps memory while
//   the device works on
//                     it). Otherwise data goes through host tensors, copied by torch.
//   stream_ordered    work of ours can be queued on the device's streams, so no call blocks the
//   host. Otherwise a call
//                     waits for the caller's current stream, and work.wait() waits for the result,
//                     on the host.
// A device that nobody wrote a plugin for is neither, and is served through torch's own interfaces
// alone. Immutable once made; any thread.
class DeviceAccess {
 public:
  // `plugin` may be null, but not for the host. Probes what the device can do.
  DeviceAccess(c10::Device device, const Device* plugin);

  c10::Device device() const { return device_; }
  bool is_host() const { return device_.is_cpu(); }
  bool direct() const { return direct_; }
  bool stream_ordered() const { return stream_ordered_; }
  // Only if stream_ordered() and not direct(): a plugin copies on streams of its own while the
  // caller's waits for the end, so that large calls can go in laps.
  bool copies_beside_streams() const { return copies_beside_streams_; }
  // Without events a Future must not carry the device, because completing it would throw.
  bool has_events() const { return has_events_; }
  // "mapped by its plugin, in stream order", for logs and people.
  std::string describe() const;

  // Only if direct(). `tensor` is contiguous and has at least one element.
  Alias alias(const at::Tensor& tensor) const;
  // Uninitialised contiguous memory like `tensor` that host code can address: on the device if
  // direct(), else on the host, pinned where torch can do that. Mappable where any is (share()). To
  // be called under the guard of the stream that uses it.
  at::Tensor temporary(const at::Tensor& tensor) const;

  // What serves the device, and what it calls it; null if nobody wrote a plugin for it.
  const Device* plugin() const { return plugin_; }
  int plugin_index() const { return is_host() ? 0 : device_.index(); }
  // Where peers on this host find the memory of `tensor`, which is of this device, contiguous and
  // has at least one element; nothing if they cannot map it. To be asked for each call, and so does
  // not take long.
  std::optional<ExportedRange> share(const at::Tensor& tensor) const;

  // The calling thread's current stream of the device. Not for the host.
  c10::Stream current_stream() const;
  // Blocks until everything queued on the current stream is done; nothing to do on the host.
  void synchronize_current_stream() const;
  // A stream that nobody else uses, if the device can make one.
  c10::Stream make_stream() const;
  // Blocks until all work of the device is done; nothing to do on the host.
  void synchronize_device() const;

  // Why no other process can be given memory of this device to work on; empty if it can. Not for
  // the host.
  std::string why_not_shareable() const;
  // Only if shareable. `base` is memory of the device, as torch's allocator gave it. See Device.
  ExportedRange export_range(void* base, size_t bytes) const;
  ImportedRange open_peer(const hcd_ipc_handle& handle) const;

  // Only if stream_ordered(). Queues fn(arg); `fn` may block, and must not call torch.
  void host_function(const c10::Stream& stream, void (*fn)(void*), void* arg) const;

 private:
  c10::Device device_;
  const Device* plugin_;
  bool direct_ = false;
  bool addresses_ = false;  // torch's pointers are addresses that host code can use as they are
  bool has_events_ = false;
  bool stream_ordered_ = false;
  bool copies_beside_streams_ = false;
  bool native_handles_ = false;
  bool pins_memory_ = false;
};

}  // namespace hccl_like
