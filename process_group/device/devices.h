#pragma once
// Every device that this process has used, the plugins known for them, and the streams kept for
// them.
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

// What kind of device torch calls the accelerator of this process: what PrivateUse1 stands for if
// anything does, else what torch was built for. The host if there is none. Opens no device.
c10::DeviceType accelerator_type();

// What `device` means: the current device of its type where it has no index, as some devices'
// tensors have none.
c10::Device with_index(c10::Device device);

// Lives as long as the process: streams cannot be given back to torch, so they are used again. Any
// thread.
class Devices {
 public:
  Devices();

  // From now on devices of type `name`, as torch calls it, are served by the plugin in
  // `library_path`. It is loaded when the first tensor of such a device comes along.
  void register_plugin(std::string name, std::string library_path);
  // There is one for them, but it cannot be used: access() throws `reason`.
  void register_broken_plugin(std::string name, std::string reason);
  std::map<std::string, std::string> plugins() const;

  // `device` has an index. Throws an Exception if its plugin cannot be loaded.
  const DeviceAccess& access(c10::Device device);

  // What network adapters reach of the devices' memory.
  ExportedMemories& exported() { return exported_; }

  // A stream for the caller alone, until he gives it back with nothing queued on it.
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
