#include "aten/cpu_memory.h"

#include <c10/core/CPUAllocator.h>

#include "glue/convert.h"
#include "glue/device_allocator.h"
#include "memory/handle.h"
#include "memory/strict.h"

namespace torch_sim {
namespace {

constexpr int kNoDevice = -1;
thread_local int kernel_device = kNoDevice;

bool in_kernel_range(const void* at) {
  return Runtime::initialised() && Runtime::get().space().holds_kernel(at);
}

void free_kernel_memory(void* at) {
  if (Runtime::forked_away()) return;
  close_window(at);
  free_device_memory(Runtime::get().space().to_device(at));
}

// Stands before the host's allocator. Installed when a device is first used, so it costs nothing
// where none is.
class HostAllocator final : public c10::Allocator {
 public:
  explicit HostAllocator(c10::Allocator& host) : host_(host) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (kernel_device == kNoDevice || bytes == 0) return host_.allocate(bytes);
    void* at =
        Runtime::get().space().to_kernel(allocate_on(kernel_device, bytes).release_context());
    open_window(at, bytes);
    return {at, at, free_kernel_memory, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return free_any; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return data.get() == data.get_context();
  }

 private:
  static void free_any(void* at);

  c10::Allocator& host_;
};

c10::DeleterFnPtr host_deleter = nullptr;

void HostAllocator::free_any(void* at) {
  (in_kernel_range(at) ? free_kernel_memory : host_deleter)(at);
}

void install() {
  c10::Allocator& host = *c10::GetCPUAllocator();
  host_deleter = host.raw_deleter();
  c10::SetCPUAllocator(new HostAllocator(host), /*priority=*/255);
}

}  // namespace

KernelMemory::KernelMemory(int device) : outer_(kernel_device) {
  static const bool installed = (install(), true);
  static_cast<void>(installed);
  kernel_device = device;
}

KernelMemory::~KernelMemory() { kernel_device = outer_; }

bool is_kernel_memory(const c10::DataPtr& data) { return data.get_deleter() == free_kernel_memory; }

c10::DataPtr to_device_memory(c10::DataPtr data) {
  const AddressSpace& space = Runtime::get().space();
  close_window(data.get());
  void* at = space.to_device(data.release_context());
  return {to_handle(at), at, free_device_memory, device_at(space.device_of(at))};
}

}  // namespace torch_sim
