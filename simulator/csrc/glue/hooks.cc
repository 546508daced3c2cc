// Implements torch's accelerator hooks: everything that torch asks a device besides operators.
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "base/flaws.h"
#include "glue/convert.h"
#include "glue/generator.h"
#include "glue/host_allocator.h"
#include "glue/resize_storage.h"
#include "memory/handle.h"

namespace torch_sim {
namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return deviceCount() > 0; }
  void init() const override { Runtime::get(); }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return Runtime::initialised(); }

  c10::DeviceIndex deviceCount() const override {
    try {
      return static_cast<c10::DeviceIndex>(Runtime::device_count());
    } catch (const std::exception&) {
      return 0;
    }
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device());
  }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_current_device(index); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex before = getCurrentDevice();
    set_current_device(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? getCurrentDevice() : exchangeDevice(index);
  }

  bool isPinnedPtr(const void* at) const override { return is_pinned(at); }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    TORCH_CHECK(!has(Flaw::kNoPinnedMemory), "sim: there is no pinned memory");
    return &host_allocator();
  }
  c10::Device getDeviceFromPtr(void* at) const override {
    const AddressSpace& space = Runtime::get().space();
    at = from_handle(at);
    TORCH_CHECK(space.holds(at), "sim: the pointer is not to memory of a sim device");
    return device_at(space.device_of(at));
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    TORCH_CHECK(!has(Flaw::kNoGenerators), "sim: there is no generator but the default one");
    return at::make_generator<Generator>(index < 0 ? getCurrentDevice() : index);
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    TORCH_CHECK(!has(Flaw::kNoResize), "sim: storages cannot be resized");
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

struct RegisterHooks {
  RegisterHooks() {
    if (!has_at_load(Flaw::kNoHooks)) at::RegisterPrivateUse1HooksInterface(new Hooks());
  }
} hooks_at_load;

}  // namespace
}  // namespace torch_sim
