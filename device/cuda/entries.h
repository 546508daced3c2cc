#pragma once
// Helpers shared by the table's entries, and the parts of the table.
#include <exception>

#include "device/cuda/driver.h"
#include "device/plugin.h"

namespace hccl_like::cuda {

// Stores the message for the thread's last_error and returns the status.
int remember(const Failure& failure) noexcept;
const char* last_error() noexcept;

// Runs an entry's body in the device's context; converts exceptions to a status.
template <typename Body>
int run(int device, const Body& body) noexcept {
  try {
    const Current current(device);
    body();
    return HCD_OK;
  } catch (const Failure& failure) {
    return remember(failure);
  } catch (const std::exception& error) {
    return remember({HCD_OUT_OF_MEMORY, error.what()});
  }
}

// hcd_stream 0 means "no stream", so the driver's null stream has the handle CU_STREAM_LEGACY.
inline CUstream stream_of(hcd_stream stream) noexcept {
  return stream == 0 ? CU_STREAM_LEGACY : reinterpret_cast<CUstream>(stream);
}
inline CUdeviceptr address_of(hcd_ref ref) noexcept {
  return reinterpret_cast<CUdeviceptr>(ref.base) + ref.offset;
}
// Without a stream, waits until the queued work is done.
inline void finish(hcd_stream stream) {
  if (stream == 0) HCCL_LIKE_CUDA(cuStreamSynchronize, CU_STREAM_LEGACY);
}

// Calls fn(arg) in stream order; later work waits for its return. The stream must not be 0.
void queue_host_function(int device, CUstream stream, void (*fn)(void*), void* arg);

// In the device's context. The driver waits until the device is idle, so not between other work.
void load_kernels(int device);

// Each fills its part of the table.
void add_streams(hcd_api& api);
void add_memory(hcd_api& api);
void add_peers(hcd_api& api);

// The kernels as PTX.
extern const char* const kKernels;

}  // namespace hccl_like::cuda
