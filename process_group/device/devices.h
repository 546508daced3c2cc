#pragma once
// Registry of the devices, plugins and reusable streams of this process.
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/exported_memory.h"
#include "process_group/device/device_access.h"

namespace hccl_like {

// The accelerator type of this process: the renamed PrivateUse1 if any, else the type torch was
// built for, else the host. Opens no device.
c10::DeviceType accelerator_type();

// Resolves a device without an index to the current device of its type.
c10::Device with_index(c10::Device device);

// Lives as long as the process. torch streams cannot be freed, so they are reused. Thread-safe.
class Devices {
 public:
  Devices();

  // Registers a plugin for devices of torch type `name`. The first tensor of that type loads it.
  void register_plugin(std::string name, std::string library_path);
  // Registers an unusable plugin: access() throws `reason`.
  void register_broken_plugin(std::string name, std::string reason);
  std::map<std::string, std::string> plugins() const;

  // The name of this process's accelerator and whether it has a plugin ("sim with a plugin"). Opens
  // no device, but a torch built for CUDA and the like counts its devices. Empty if there is none.
  std::string accelerator_kind() const;

  // `device` has an index. Throws if its plugin cannot be loaded or serves another type.
  const DeviceAccess& access(c10::Device device);

  // Device memory exported to network cards.
  ExportedMemories& exported() { return exported_; }

  // An exclusive stream. Give it back idle.
  c10::Stream take_stream(const DeviceAccess& access);
  void give_back(c10::Stream stream);

 private:
  const Device* plugin(c10::DeviceType type);

  mutable std::mutex mutex_;
  std::map<std::string, std::string> paths_;
  std::map<std::string, std::string> broken_;  // name to reason
  std::map<c10::DeviceType, std::unique_ptr<Device>> loaded_;
  ExportedMemories exported_;
  const Device host_device_;
  DeviceAccess host_;
  std::unordered_map<c10::Device, std::unique_ptr<DeviceAccess>> accelerators_;
  std::unordered_map<c10::Device, std::vector<c10::Stream>> spare_;
};

}  // namespace hccl_like
