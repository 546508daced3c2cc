#pragma once

#include <c10/core/Allocator.h>

namespace torch_sim {

// While one is alive, what host kernels allocate on this thread is memory of the device, of its
// current stream. So the result of a host kernel becomes a device tensor without being copied.
// Other threads, and this one outside, are served by the host's allocator as ever.
class KernelMemory {
 public:
  explicit KernelMemory(int device);
  ~KernelMemory();
  KernelMemory(const KernelMemory&) = delete;
  KernelMemory& operator=(const KernelMemory&) = delete;

 private:
  int outer_;
};

// True if the memory was allocated under a KernelMemory.
bool is_kernel_memory(const c10::DataPtr& data);

// Turns it into device memory; is_kernel_memory(data) must hold.
c10::DataPtr to_device_memory(c10::DataPtr data);

}  // namespace torch_sim
