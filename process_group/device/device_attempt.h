#pragma once
// Helpers that probe a torch device for optional features.
#include <exception>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "core/base/log.h"
#include "process_group/device/device_capabilities.h"

namespace hccl_like {

inline c10::impl::VirtualGuardImpl guard_of(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

// True if `attempt` does not throw. c10 throws by default for missing features.
template <class Attempt>
bool works(Attempt&& attempt) {
  try {
    attempt();
    return true;
  } catch (const std::exception& error) {
    log_info([&] { return "a feature of the device is not used: " + words_of(error); });
    return false;
  }
}

}  // namespace hccl_like
