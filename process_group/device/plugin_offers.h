#pragma once
// What the plugin of a device has entries for, and what follows from each answer: for people and
// reports.
#include <string>
#include <vector>

#include "process_group/device/device_access.h"

namespace hccl_like {

struct PluginOffer {
  std::string entries;  // of the table, one name or several that come together
  bool present = false;
  std::string consequence;  // what hccl-like does about it
};

// All that hccl-like uses and that a plugin may lack; none if nobody wrote a plugin for the device.
// Any thread.
std::vector<PluginOffer> plugin_offers(const DeviceAccess& access);

}  // namespace hccl_like
