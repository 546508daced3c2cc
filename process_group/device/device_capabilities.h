#pragma once
// What a device offers through torch's own interfaces, found by trying, and what follows from each
// answer. No plugin is asked here: this is all that is known of a device that nobody wrote one for.
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
  std::string name;  // of the feature, for people and reports: "pinned_memory"
  bool present = false;
  std::string reason;  // how that is known: what was tried or, if it failed, the device's own words
  std::string consequence;  // what hccl-like does about it
};

// Asks one device, once: nothing that a device says later changes the answers. A device may lack
// any feature, throw anything, or return wrong data; all of that means no.
//
// Trying needs a stream that nobody else uses, so that it waits for no work of the user's. Where
// the device has none, making this object waits for the current stream.
class DeviceCapabilities {
 public:
  // `device` is an accelerator, with an index. Any thread.
  explicit DeviceCapabilities(c10::Device device);

  bool has(Feature feature) const;
  const std::vector<Capability>& list() const { return list_; }
  // The stream that was made to try streams with; nothing if the device has but one.
  const std::optional<c10::Stream>& stream() const { return stream_; }

 private:
  std::optional<c10::Stream> stream_;
  std::vector<Capability> list_;  // by feature
};

// Asks when first called for the device; any thread. What is returned lives as long as the process.
const DeviceCapabilities& capabilities_of(c10::Device device);

// What an exception says, without where in the code it was thrown.
std::string words_of(const std::exception& error);

}  // namespace hccl_like
