// A fake CUDA driver on host memory for tests: streams are threads, kernels are compiled for the
// host. Has only the functions that the plugin uses; memory is in fake_memory.cc.
#include "device/cuda/testing/fake_driver.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "device/cuda/testing/host_kernels.h"

using namespace hccl_like;
using cuda::HostKernel;
using cuda::kHostKernels;
using fake_device::Point;
using fake_device::Worker;

namespace hccl_like::fake_cuda {

// Never destroyed: its threads may run during process exit.
Worker& worker_of(CUstream stream) {
  static auto& legacy = *new Worker();
  const bool is_legacy = stream == nullptr || stream == CU_STREAM_LEGACY;
  return is_legacy ? legacy : *reinterpret_cast<Worker*>(stream);
}

}  // namespace hccl_like::fake_cuda

namespace {

using fake_cuda::worker_of;

// The last recording; null before the first.
struct Event {
  std::shared_ptr<Point> recorded;
};
Event& event_of(CUevent event) { return *reinterpret_cast<Event*>(event); }

thread_local int contexts = 0;  // pushed and not popped

}  // namespace

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_INVALID_VALUE ? "invalid argument" : "an error of the fake driver";
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) { return *count = 1, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice) {
  std::memset(uuid, 7, sizeof *uuid);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetPCIBusId(char* id, int bytes, CUdevice) {
  std::strncpy(id, "0000:00:00.0", static_cast<size_t>(bytes));
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  static int one;
  *context = reinterpret_cast<CUcontext>(&one);
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext) { return ++contexts, CUDA_SUCCESS; }
CUresult cuCtxPopCurrent(CUcontext*) {
  return --contexts < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned, int) {
  if (contexts == 0) return CUDA_ERROR_INVALID_CONTEXT;
  *stream = reinterpret_cast<CUstream>(new Worker());
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
  // As in the real driver: ends the stream after its work, without waiting.
  std::thread([stream] { delete reinterpret_cast<Worker*>(stream); }).detach();
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
  return worker_of(stream).synchronize(), CUDA_SUCCESS;
}
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void* arg) {
  return worker_of(stream).enqueue([=] { fn(arg); }), CUDA_SUCCESS;
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr at, cuuint64_t value, unsigned) {
  const auto* word = reinterpret_cast<const uint64_t*>(at);
  worker_of(stream).enqueue([=] {
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value) std::this_thread::yield();
  });
  return CUDA_SUCCESS;
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr at, cuuint64_t value, unsigned) {
  auto* word = reinterpret_cast<uint64_t*>(at);
  worker_of(stream).enqueue([=] { __atomic_store_n(word, uint64_t{value}, __ATOMIC_RELEASE); });
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  if (contexts == 0) return CUDA_ERROR_INVALID_CONTEXT;
  *event = reinterpret_cast<CUevent>(new Event());
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  auto point = std::make_shared<Point>(false);
  event_of(event).recorded = point;
  worker_of(stream).enqueue([point] {
    point->store(true);
    point->notify_all();
  });
  return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent event) {
  const auto& recorded = event_of(event).recorded;
  return !recorded || recorded->load() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventSynchronize(CUevent event) {
  if (const auto recorded = event_of(event).recorded) recorded->wait(false);
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  if (const auto recorded = event_of(event).recorded)
    worker_of(stream).enqueue([recorded] { recorded->wait(false); });
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) { return delete &event_of(event), CUDA_SUCCESS; }

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  *module = reinterpret_cast<CUmodule>(const_cast<void*>(image));
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  // The name must also be in the module image.
  const std::string entry = ".entry " + std::string(name) + "(";
  const auto found =
      std::find_if(std::begin(kHostKernels), std::end(kHostKernels),
                   [&](const HostKernel& kernel) { return kernel.name == std::string(name); });
  if (found == std::end(kHostKernels) ||
      std::strstr(reinterpret_cast<const char*>(module), entry.c_str()) == nullptr)
    return CUDA_ERROR_NOT_FOUND;
  *function = reinterpret_cast<CUfunction>(const_cast<HostKernel*>(found));
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned blocks, unsigned, unsigned, unsigned threads,
                        unsigned, unsigned, unsigned, CUstream stream, void** arguments, void**) {
  if (blocks == 0 || threads == 0 || threads > 1024) return CUDA_ERROR_INVALID_VALUE;
  const HostKernel kernel = *reinterpret_cast<const HostKernel*>(function);
  void* const out = *static_cast<void**>(arguments[0]);
  const Sources in = *static_cast<Sources*>(arguments[1]);
  const unsigned sources = *static_cast<unsigned*>(arguments[2]);
  const uint64_t count = *static_cast<uint64_t*>(arguments[3]);
  const int op = *static_cast<int*>(arguments[4]);
  const double scale = *static_cast<double*>(arguments[5]);
  const double result_scale = *static_cast<double*>(arguments[6]);
  worker_of(stream).enqueue([=] {
    kernel.run(out, in, sources, count, op, scale, result_scale, uint64_t{blocks} * threads);
  });
  return CUDA_SUCCESS;
}
