#pragma once
// Slices that network cards move directly between device memories, without staging.
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/engine/communicator.h"
#include "process_group/device/devices.h"
#include "process_group/staging/device_side.h"

namespace hccl_like {

// Role of an operation in a slice.
struct SliceRole {
  enum class Kind : uint8_t { kWhole, kSend, kRecv };  // the whole slice, or one message
  Kind kind = Kind::kWhole;
  size_t chunk = 0;  // of a message
  int peer = 0;
};

// For one group and device; one thread at a time. Each rank decides alone which slices bypass
// staging.
class DeviceSlices {
 public:
  // Both arguments must outlive this object.
  DeviceSlices(Devices& devices, const DeviceAccess& access) : devices_(devices), access_(access) {}

  // True if any call may bypass staging. A few nanoseconds.
  static bool may_serve(const DeviceAccess& access, const Communicator& communicator);

  // Addresses of a call's chunks for network cards. The memory stays registered while this lives.
  struct Places {
    std::vector<Region> input, output;
    std::vector<std::shared_ptr<const ExportedMemory>> held;
  };
  // Returns nothing if the cards cannot; logs this once. May wait for the device and the engine.
  std::optional<Places> places(Communicator& communicator, Collective collective,
                               const DeviceSide& input, const DeviceSide& output);
  // Switches a slice's operations, not launched yet, to device memory. Returns the chunks whose
  // part the caller must copy from input to output, or nothing if the slice must be staged.
  std::optional<std::vector<size_t>> take(const Places& places, const DeviceSide& input,
                                          const DeviceSide& output, Part part, size_t element_bytes,
                                          std::span<const std::shared_ptr<Operation>> operations,
                                          std::span<const SliceRole> roles);

 private:
  bool prepare(Communicator& communicator, const ExportedMemory& memory);
  void tell(bool direct, const std::string& why);

  Devices& devices_;
  const DeviceAccess& access_;
  std::map<std::array<uint64_t, 2>, bool> prepared_;  // true: the cards registered it
  bool told_direct_ = false, told_staged_ = false;
};

}  // namespace hccl_like
