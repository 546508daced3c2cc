#pragma once
// The driver's functions, found at run time: nothing links to CUDA.
#include <cuda.h>

#include <string>

namespace hccl_like::cuda {

// One row for each function that is used. cuda.h renames some of them to their latest version; the
// rows follow.
#define HCCL_LIKE_CUDA_FUNCTIONS(F) \
  F(cuInit)                         \
  F(cuGetErrorString)               \
  F(cuDeviceGet)                    \
  F(cuDeviceGetCount)               \
  F(cuDeviceGetUuid)                \
  F(cuDeviceGetPCIBusId)            \
  F(cuDevicePrimaryCtxRetain)       \
  F(cuCtxPushCurrent)               \
  F(cuCtxPopCurrent)                \
  F(cuStreamCreateWithPriority)     \
  F(cuStreamDestroy)                \
  F(cuStreamSynchronize)            \
  F(cuStreamWaitEvent)              \
  F(cuStreamWaitValue64)            \
  F(cuStreamWriteValue64)           \
  F(cuLaunchHostFunc)               \
  F(cuEventCreate)                  \
  F(cuEventRecord)                  \
  F(cuEventQuery)                   \
  F(cuEventSynchronize)             \
  F(cuEventDestroy)                 \
  F(cuMemAlloc)                     \
  F(cuMemFree)                      \
  F(cuMemcpyDtoHAsync)              \
  F(cuMemcpyHtoDAsync)              \
  F(cuMemcpyDtoDAsync)              \
  F(cuMemHostAlloc)                 \
  F(cuMemFreeHost)                  \
  F(cuMemHostRegister)              \
  F(cuMemHostUnregister)            \
  F(cuMemHostGetDevicePointer)      \
  F(cuMemGetAddressRange)           \
  F(cuMemGetHandleForAddressRange)  \
  F(cuFlushGPUDirectRDMAWrites)     \
  F(cuPointerGetAttribute)          \
  F(cuIpcGetMemHandle)              \
  F(cuIpcOpenMemHandle)             \
  F(cuIpcCloseMemHandle)            \
  F(cuModuleLoadData)               \
  F(cuModuleGetFunction)            \
  F(cuLaunchKernel)

struct Driver {
#define HCCL_LIKE_CUDA_MEMBER(name) decltype(&::name) name##_ = nullptr;
  HCCL_LIKE_CUDA_FUNCTIONS(HCCL_LIKE_CUDA_MEMBER)
#undef HCCL_LIKE_CUDA_MEMBER
};

// A failure on its way out of an entry: what it becomes, and the sentence.
struct Failure {
  int status;  // hcd_status
  std::string sentence;
};

// Loads the driver, once. Throws Failure if there is none, or if it is too old.
// HCCL_LIKE_CUDA_DRIVER names another library than libcuda.so.1.
const Driver& driver();

// Throws Failure unless the call was a success; `call` names it.
void check(CUresult result, const char* call);

// The device's primary context, which torch uses as well, made current for the calling thread while
// this lives.
class Current {
 public:
  explicit Current(int device);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
};

#define HCCL_LIKE_CUDA(name, ...) \
  ::hccl_like::cuda::check(::hccl_like::cuda::driver().name##_(__VA_ARGS__), #name)

}  // namespace hccl_like::cuda
