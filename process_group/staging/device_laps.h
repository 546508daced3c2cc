#pragma once
// Laps of calls that network cards move between the memories of devices, with nothing staged on the
// way.
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/engine/communicator.h"
#include "process_group/device/devices.h"
#include "process_group/staging/device_side.h"

namespace hccl_like {

// What an operation of a lap does.
struct LapRole {
  enum class Kind : uint8_t { kWhole, kSend, kRecv };  // all that the call is about, or one message
  Kind kind = Kind::kWhole;
  size_t chunk = 0;  // of a message
  int peer = 0;
};

// Of one group and one device; one thread at a time. Which laps go so is each rank's own decision:
// the other end of a message cannot tell.
class DeviceLaps {
 public:
  // Both outlive this.
  DeviceLaps(Devices& devices, const DeviceAccess& access) : devices_(devices), access_(access) {}

  // Whether any call may. A few nanoseconds.
  static bool may_serve(const DeviceAccess& access, const Communicator& communicator);

  // Where the chunks of a call lie for network cards, which have been given that memory. It stays
  // theirs as long as this does.
  struct Places {
    std::vector<Region> input, output;
    std::vector<std::shared_ptr<const ExportedMemory>> held;
  };
  // Nothing if they cannot have it, which is logged the first time. May wait for the device and for
  // the engine.
  std::optional<Places> places(Communicator& communicator, Collective collective,
                               const DeviceSide& input, const DeviceSide& output);
  // Has the operations of a lap, which were not launched, use that memory, if all of them can;
  // gives the chunks whose part in this lap is then to be copied from input to output by the
  // caller. Nothing if the lap is to be staged.
  std::optional<std::vector<size_t>> take(const Places& places, const DeviceSide& input,
                                          const DeviceSide& output, Part part, size_t element_bytes,
                                          std::span<const std::shared_ptr<Operation>> operations,
                                          std::span<const LapRole> roles);

 private:
  bool prepare(Communicator& communicator, const ExportedMemory& memory);
  void tell(bool direct, const std::string& why);

  Devices& devices_;
  const DeviceAccess& access_;
  std::map<std::array<uint64_t, 2>, bool> prepared_;  // whether cards took it
  bool told_direct_ = false, told_staged_ = false;
};

}  // namespace hccl_like
