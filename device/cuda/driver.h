#pragma once
// The CUDA driver's functions, loaded at run time: no link dependency on CUDA.
#include <cuda.h>

#include <string>

namespace hccl_like::cuda {

// One row for each function in use. cuda.h maps some names to newer versions.
#define HCCL_LIKE_CUDA_FUNCTIONS(F)    \
  F(cuInit)                            \
  F(cuGetErrorString)                  \
  F(cuDeviceGet)                       \
  F(cuDeviceGetCount)                  \
  F(cuDeviceGetUuid)                   \
  F(cuDeviceGetPCIBusId)               \
  F(cuDevicePrimaryCtxRetain)          \
  F(cuCtxPushCurrent)                  \
  F(cuCtxPopCurrent)                   \
  F(cuThreadExchangeStreamCaptureMode) \
  F(cuStreamCreateWithPriority)        \
  F(cuStreamDestroy)                   \
  F(cuStreamSynchronize)               \
  F(cuStreamWaitEvent)                 \
  F(cuStreamWaitValue64)               \
  F(cuStreamWriteValue64)              \
  F(cuLaunchHostFunc)                  \
  F(cuEventCreate)                     \
  F(cuEventRecord)                     \
  F(cuEventQuery)                      \
  F(cuEventSynchronize)                \
  F(cuEventDestroy)                    \
  F(cuMemAlloc)                        \
  F(cuMemFree)                         \
  F(cuMemcpyDtoHAsync)                 \
  F(cuMemcpyHtoDAsync)                 \
  F(cuMemcpyDtoDAsync)                 \
  F(cuMemHostAlloc)                    \
  F(cuMemFreeHost)                     \
  F(cuMemHostRegister)                 \
  F(cuMemHostUnregister)               \
  F(cuMemHostGetDevicePointer)         \
  F(cuMemGetAddressRange)              \
  F(cuMemGetHandleForAddressRange)     \
  F(cuFlushGPUDirectRDMAWrites)        \
  F(cuPointerGetAttribute)             \
  F(cuIpcGetMemHandle)                 \
  F(cuIpcOpenMemHandle)                \
  F(cuIpcCloseMemHandle)               \
  F(cuModuleLoadData)                  \
  F(cuModuleGetFunction)               \
  F(cuLaunchKernel)

struct Driver {
#define HCCL_LIKE_CUDA_MEMBER(name) decltype(&::name) name##_ = nullptr;
  HCCL_LIKE_CUDA_FUNCTIONS(HCCL_LIKE_CUDA_MEMBER)
#undef HCCL_LIKE_CUDA_MEMBER
};

// A failed call: the status and message that an entry returns.
struct Failure {
  int status;  // hcd_status
  std::string sentence;
};

// Loads the driver once. Throws Failure if it is missing or too old. HCCL_LIKE_CUDA_DRIVER replaces
// libcuda.so.1.
const Driver& driver();

// Throws Failure, with the name `call`, unless the call succeeded.
void check(CUresult result, const char* call);

// While it lives, the device's primary context (shared with torch) is current for this thread, and
// the thread may allocate memory although a stream captures a graph.
class Current {
 public:
  explicit Current(int device);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  CUstreamCaptureMode before_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

#define HCCL_LIKE_CUDA(name, ...) \
  ::hccl_like::cuda::check(::hccl_like::cuda::driver().name##_(__VA_ARGS__), #name)

}  // namespace hccl_like::cuda
