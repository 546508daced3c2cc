// A fake CUDA driver on host memory for tests: streams are threads, kernels are compiled for the
// host. Has only the functions that the plugin uses; memory is in fake_memory.cc.
#include "device/cuda/testing/fake_driver.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "device/cuda/testing/host_kernels.h"

using namespace hccl_like;
using cuda::HostKernel;
using cuda::HostSmallKernel;
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

thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
bool may_allocate() { return mode == CU_STREAM_CAPTURE_MODE_RELAXED; }

}  // namespace hccl_like::fake_cuda

namespace {

using fake_cuda::worker_of;

// The last recording; null before the first.
struct Event {
  std::shared_ptr<Point> recorded;
};
Event& event_of(CUevent event) { return *reinterpret_cast<Event*>(event); }

thread_local int contexts = 0;  // pushed and not popped

template <class Argument>
Argument argument(void** arguments, int number) {
  return *static_cast<Argument*>(arguments[number]);
}

// The work of a launch of a kernel with these arguments.
using Launch =
    std::function<std::function<void()>(void** arguments, unsigned blocks, unsigned threads)>;

Launch launch_of(const HostKernel& kernel) {
  return [kernel](void** all, unsigned blocks, unsigned threads) {
    return [kernel, threads = uint64_t{blocks} * threads, out = argument<void*>(all, 0),
            in = argument<Sources>(all, 1), sources = argument<unsigned>(all, 2),
            count = argument<uint64_t>(all, 3), op = argument<int>(all, 4),
            scale = argument<double>(all, 5), result_scale = argument<double>(all, 6)] {
      kernel.run(out, in, sources, count, op, scale, result_scale, threads);
    };
  };
}
Launch launch_of(const HostSmallKernel& kernel) {
  return [kernel](void** all, unsigned blocks, unsigned) {
    return [kernel, blocks, out = argument<void*>(all, 0), in = argument<const void*>(all, 1),
            count = argument<uint64_t>(all, 2), op = argument<int>(all, 3),
            scale = argument<double>(all, 4), result_scale = argument<double>(all, 5),
            ranks = argument<SmallRanks>(all, 6)] {
      for (unsigned block = 0; block < blocks; ++block)
        kernel.part(out, in, count, op, scale, result_scale, ranks, block, blocks, 0, 1);
    };
  };
}

std::map<std::string, Launch>& kernels() {
  static auto& all = *new std::map<std::string, Launch>([] {
    std::map<std::string, Launch> made;
    for (const HostKernel& kernel : kHostKernels) made[kernel.name] = launch_of(kernel);
    for (const auto& kernel : cuda::kHostSmallKernels) made[kernel.name] = launch_of(kernel);
    return made;
  }());
  return all;
}

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

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* other) {
  return std::swap(fake_cuda::mode, *other), CUDA_SUCCESS;
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
  if (std::strstr(reinterpret_cast<const char*>(module), entry.c_str()) == nullptr)
    return CUDA_ERROR_NOT_FOUND;
  const auto found = kernels().find(name);
  if (found == kernels().end()) return CUDA_ERROR_NOT_FOUND;
  *function = reinterpret_cast<CUfunction>(&found->second);
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned blocks, unsigned, unsigned, unsigned threads,
                        unsigned, unsigned, unsigned, CUstream stream, void** arguments, void**) {
  if (blocks == 0 || threads == 0 || threads > 1024) return CUDA_ERROR_INVALID_VALUE;
  worker_of(stream).enqueue(
      (*reinterpret_cast<const Launch*>(function))(arguments, blocks, threads));
  return CUDA_SUCCESS;
}
