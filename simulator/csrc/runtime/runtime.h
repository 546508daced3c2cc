#pragma once

#include <memory>
#include <vector>

#include "memory/address_space.h"
#include "runtime/device.h"

namespace torch_sim {

// All simulated devices of the process. It is made when a device is first used and never destroyed:
// at the end of the process work may still be queued or blocked, and its threads must find
// everything in place.
class Runtime {
 public:
  // How many devices there are: TORCH_SIM_DEVICES, or kDefaultDevices. Uses no device.
  static int device_count();
  static constexpr int kDefaultDevices = 8;
  static constexpr int kMostDevices = 64;

  static bool initialised();
  // True in a process forked off after a device had been used.
  static bool forked_away();

  // The first call initialises. Throws ForkedAway in a forked process.
  static Runtime& get();

  const AddressSpace& space() const { return space_; }
  // Throws if there is no such device.
  Device& device(int index);

 private:
  Runtime();

  AddressSpace space_;
  std::vector<std::unique_ptr<Device>> devices_;
};

// The calling thread's current device, and its current stream on each.
int current_device();
void set_current_device(int index);
Stream& current_stream(int device);
void set_current_stream(Stream& stream);

}  // namespace torch_sim
