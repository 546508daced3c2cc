#pragma once
// Probes the torch interfaces of a device, without its plugin.
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace hccl_like {

enum class Feature : uint8_t {
  kCopies,
  kOffsetCopies,
  kPinnedMemory,
  kNonBlockingCopies,
  kStreams,
  kStreamWaits,
  kEvents,
  kDeviceWaits,
  kNativeStreams,
};

struct Capability {
  Feature feature;
  std::string name;  // for reports: "pinned_memory"
  bool present = false;
  std::string reason;       // evidence: the attempt or, if it failed, the device's error message
  std::string consequence;  // effect on hccl-like
};

// Probes one device once; the answers never change. A missing feature, any exception or wrong data
// counts as absent. Uses its own stream; a single-stream device makes it wait for the current
// stream.
class DeviceCapabilities {
 public:
  // `device` is an accelerator with an index. Any thread.
  explicit DeviceCapabilities(c10::Device device);

  bool has(Feature feature) const;
  const std::vector<Capability>& list() const { return list_; }
  // The probe stream; nothing if the device has only one stream.
  const std::optional<c10::Stream>& stream() const { return stream_; }

 private:
  std::optional<c10::Stream> stream_;
  std::vector<Capability> list_;  // by feature
};

// Probes on the first call for a device. Any thread. The result lives as long as the process.
const DeviceCapabilities& capabilities_of(c10::Device device);

// The message of an exception without its backtrace.
std::string words_of(const std::exception& error);

}  // namespace hccl_like
