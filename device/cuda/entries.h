#pragma once
// What the entries of the table share, and the files they are in.
#include <exception>

#include "device/cuda/driver.h"
#include "device/plugin.h"

namespace hccl_like::cuda {

// Keeps the sentence for the thread's last_error, and returns the status.
int remember(const Failure& failure) noexcept;
const char* last_error() noexcept;

// Runs the body of an entry with the device's context current; a failure becomes a status.
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

// The null stream of the driver is a stream, and 0 of the table is none: it goes by its other name.
inline CUstream stream_of(hcd_stream stream) noexcept {
  return stream == 0 ? CU_STREAM_LEGACY : reinterpret_cast<CUstream>(stream);
}
inline CUdeviceptr address_of(hcd_ref ref) noexcept {
  return reinterpret_cast<CUdeviceptr>(ref.base) + ref.offset;
}
// Without a stream: what was queued must be done before the entry returns.
inline void finish(hcd_stream stream) {
  if (stream == 0) HCCL_LIKE_CUDA(cuStreamSynchronize, CU_STREAM_LEGACY);
}

// Calls fn(arg) when the stream gets there, which goes on when it has returned. Any stream but 0.
void queue_host_function(int device, CUstream stream, void (*fn)(void*), void* arg);

// Each fills in its part of the table.
void add_streams(hcd_api& api);
void add_memory(hcd_api& api);
void add_peers(hcd_api& api);

// The kernels, as PTX.
extern const char* const kKernels;

}  // namespace hccl_like::cuda
