#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "runtime/runtime.h"

namespace torch_sim {

inline c10::Device device_at(int index) {
  return c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index));
}

inline c10::Stream to_c10(const Stream& stream) {
  return c10::Stream(c10::Stream::UNSAFE, device_at(stream.device()), stream.id());
}

// Throws if the device has no such stream.
Stream& from_c10(const c10::Stream& stream);

// The index of a device whose index may be left out.
inline int index_of(c10::Device device) {
  return device.has_index() ? device.index() : current_device();
}

}  // namespace torch_sim
