#pragma once
// A torch accelerator for tests, of type PrivateUse1: opaque memory, copies that fail on demand, no
// copies of complex128.
#include <string>

#include <ATen/core/Tensor.h>

namespace hccl_like::testing {

// Device 0 has what torch demands of a device: one stream, copies that block, no events.
inline const c10::Device kBare(c10::DeviceType::PrivateUse1, 0);
// Device 1 has streams and events, each stream with a thread, and serves as the plugin's device.
inline const c10::Device kStreams(c10::DeviceType::PrivateUse1, 1);

// The library of the accelerator's plugin, for Devices::register_plugin().
std::string fake_plugin();

// The copies of the tensor's memory fail after `copies` more, in torch and in the plugin.
void fail_copies_after(const at::Tensor& tensor, int copies);

}  // namespace hccl_like::testing
