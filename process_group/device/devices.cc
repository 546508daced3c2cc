#include "process_group/device/devices.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "core/base/error.h"
#include "core/base/log.h"
#include "device/host/host_api.h"

namespace hccl_like {

c10::DeviceType accelerator_type() {
  return at::getAccelerator(/*checked=*/false).value_or(c10::kCPU);
}

c10::Device with_index(c10::Device device) {
  if (device.is_cpu() || device.has_index()) return device;
  return c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

Devices::Devices() : host_device_(host_api()), host_(c10::Device(c10::kCPU), &host_device_) {}

void Devices::register_plugin(std::string name, std::string library_path) {
  std::lock_guard lock(mutex_);
  paths_[std::move(name)] = std::move(library_path);
}

void Devices::register_broken_plugin(std::string name, std::string reason) {
  std::lock_guard lock(mutex_);
  broken_[std::move(name)] = std::move(reason);
}

std::map<std::string, std::string> Devices::plugins() const {
  std::lock_guard lock(mutex_);
  return paths_;
}

std::string Devices::accelerator_kind() const {
  const c10::DeviceType type = accelerator_type();
  if (type == c10::kCPU) return {};
  // A build of torch for CUDA also runs on hosts without a GPU.
  if (type != c10::kPrivateUse1 && at::accelerator::deviceCount() == 0) return {};
  const std::string name = c10::DeviceTypeName(type, /*lower_case=*/true);
  std::lock_guard lock(mutex_);
  return name + (paths_.contains(name) ? " with a plugin" : "");
}

const DeviceAccess& Devices::access(c10::Device device) {
  if (device.is_cpu()) return host_;
  std::lock_guard lock(mutex_);
  auto& access = accelerators_[device];
  if (!access) {
    access = std::make_unique<DeviceAccess>(device, plugin(device.type()));
    log_info([&] { return device.str() + ": " + access->describe(); });
  }
  return *access;
}

// Null if no plugin is registered under the current name of the type.
const Device* Devices::plugin(c10::DeviceType type) {
  auto& loaded = loaded_[type];
  if (loaded) return loaded.get();
  const std::string name = c10::DeviceTypeName(type, /*lower_case=*/true);
  if (const auto broken = broken_.find(name); broken != broken_.end()) {
    throw_error(ErrorCode::kDevice,
                "the plugin for device '" + name + "' cannot be used: " + broken->second);
  }
  const auto found = paths_.find(name);
  if (found == paths_.end()) return nullptr;
  std::unique_ptr<Device> plugin;
  try {
    plugin = Device::load(found->second);
  } catch (const Exception& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    broken_[name] = error.error().message;  // a retry would hang again
    return this->plugin(type);
  }
  if (plugin->name() != name) {
    throw_error(ErrorCode::kDevice, "the plugin registered for device '" + name + "', " +
                                        found->second + ", is one for '" + plugin->name() +
                                        "'; register it under the name of its device");
  }
  loaded = std::move(plugin);
  return loaded.get();
}

c10::Stream Devices::take_stream(const DeviceAccess& access) {
  std::lock_guard lock(mutex_);
  auto& spare = spare_[access.device()];
  if (spare.empty()) return access.make_stream();
  const c10::Stream stream = spare.back();
  spare.pop_back();
  return stream;
}

void Devices::give_back(c10::Stream stream) {
  std::lock_guard lock(mutex_);
  spare_[stream.device()].push_back(stream);
}

}  // namespace hccl_like
