#pragma once
// Reports the optional entries of a device plugin and their effects.
#include <string>
#include <vector>

#include "process_group/device/device_access.h"

namespace hccl_like {

struct PluginOffer {
  std::string entries;  // table entries, one or several used together
  bool present = false;
  std::string consequence;  // effect on hccl-like
};

// All optional entries that hccl-like uses; empty without a plugin. Any thread.
std::vector<PluginOffer> plugin_offers(const DeviceAccess& access);

}  // namespace hccl_like
