#include "device/cuda/driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include "device/plugin.h"

namespace hccl_like::cuda {
namespace {

// The function's name after cuda.h's renaming.
#define HCCL_LIKE_CUDA_TEXT(name) #name
#define HCCL_LIKE_CUDA_NAME(name) HCCL_LIKE_CUDA_TEXT(name)

Driver load() {
  const char* const chosen = std::getenv("HCCL_LIKE_CUDA_DRIVER");
  const std::string path = chosen != nullptr && *chosen != '\0' ? chosen : "libcuda.so.1";
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw Failure{HCD_DEVICE_LOST, "no CUDA driver here: " + std::string(::dlerror())};
  Driver found;
  const auto find = [&](auto& member, const char* name) {
    member = reinterpret_cast<std::decay_t<decltype(member)>>(::dlsym(library, name));
    if (member == nullptr)
      throw Failure{HCD_UNSUPPORTED,
                    "the CUDA driver " + path + " has no " + name + "; install a later one"};
  };
#define HCCL_LIKE_CUDA_FIND(name) find(found.name##_, HCCL_LIKE_CUDA_NAME(name));
  HCCL_LIKE_CUDA_FUNCTIONS(HCCL_LIKE_CUDA_FIND)
#undef HCCL_LIKE_CUDA_FIND
  return found;
}

// Never released; torch keeps primary contexts, too.
CUcontext context_of(int device) {
  static std::mutex mutex;
  static auto& contexts = *new std::map<int, CUcontext>();
  const std::lock_guard lock(mutex);
  auto& context = contexts[device];
  if (context != nullptr) return context;
  CUdevice handle = 0;
  if (driver().cuDeviceGet_(&handle, device) != CUDA_SUCCESS)
    throw Failure{HCD_INVALID, "there is no CUDA device " + std::to_string(device)};
  HCCL_LIKE_CUDA(cuDevicePrimaryCtxRetain, &context, handle);
  return context;
}

int status_of(CUresult result) {
  switch (result) {
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
    case CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED:
      return HCD_INVALID;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return HCD_OUT_OF_MEMORY;
    case CUDA_ERROR_NOT_SUPPORTED:
      return HCD_UNSUPPORTED;
    case CUDA_ERROR_NOT_READY:
      return HCD_NOT_READY;
    default:
      return HCD_DEVICE_LOST;
  }
}

}  // namespace

const Driver& driver() {
  static const Driver loaded = load();
  return loaded;
}

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  driver().cuGetErrorString_(result, &text);
  throw Failure{status_of(result),
                std::string(call) + ": " + (text == nullptr ? "unknown error" : text)};
}

Current::Current(int device) {
  HCCL_LIKE_CUDA(cuCtxPushCurrent, context_of(device));
  driver().cuThreadExchangeStreamCaptureMode_(&before_);
}

Current::~Current() {
  driver().cuThreadExchangeStreamCaptureMode_(&before_);
  CUcontext popped = nullptr;
  driver().cuCtxPopCurrent_(&popped);
}

}  // namespace hccl_like::cuda
