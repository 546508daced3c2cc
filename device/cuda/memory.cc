// Copies, reductions, allocation and registration of memory.
#include <map>
#include <mutex>
#include <string>

#include "device/cuda/entries.h"
#include "device/cuda/kernel_arguments.h"

namespace hccl_like::cuda {
namespace {

int copy_d2h(int device, void* host, hcd_ref from, size_t bytes, hcd_stream stream) {
  return run(device, [&] {
    if (bytes == 0) return;
    HCCL_LIKE_CUDA(cuMemcpyDtoHAsync, host, address_of(from), bytes, stream_of(stream));
    finish(stream);
  });
}

// The driver reads other host memory at the call, before earlier work of the stream is done.
bool is_pinned(const void* host) {
  unsigned type = 0;
  return driver().cuPointerGetAttribute_(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                         reinterpret_cast<CUdeviceptr>(host)) == CUDA_SUCCESS &&
         type == CU_MEMORYTYPE_HOST;
}

int copy_h2d(int device, hcd_ref to, const void* host, size_t bytes, hcd_stream stream) {
  return run(device, [&] {
    if (bytes == 0) return;
    if (!is_pinned(host)) HCCL_LIKE_CUDA(cuStreamSynchronize, stream_of(stream));
    HCCL_LIKE_CUDA(cuMemcpyHtoDAsync, address_of(to), host, bytes, stream_of(stream));
    finish(stream);
  });
}

int copy_d2d(int device, hcd_ref to, hcd_ref from, size_t bytes, hcd_stream stream) {
  return run(device, [&] {
    if (bytes == 0) return;
    HCCL_LIKE_CUDA(cuMemcpyDtoDAsync, address_of(to), address_of(from), bytes, stream_of(stream));
    finish(stream);
  });
}

// Ends of kernel names in kernels.cu, by hcd_type.
constexpr const char* kTypeNames[] = {
    "float32", "float64", "float16", "bfloat16",  "float8_e4m3fn", "float8_e5m2",
    "int8",    "int16",   "int32",   "int64",     "uint8",         "uint16",
    "uint32",  "uint64",  "bool",    "complex64", "complex128"};
constexpr size_t kTypeBytes[] = {4, 8, 2, 2, 1, 1, 1, 2, 4, 8, 1, 2, 4, 8, 1, 8, 16};

bool is_defined(hcd_type type, hcd_op op) {
  const bool is_complex = type == HCD_COMPLEX64 || type == HCD_COMPLEX128;
  const bool is_integer = type >= HCD_INT8 && type <= HCD_UINT64;
  if (op == HCD_MIN || op == HCD_MAX) return !is_complex && type != HCD_BOOL;
  return op == HCD_SUM || op == HCD_PRODUCT || is_integer;
}

// Of the current context. Each device loads the module once and keeps it.
CUmodule module_of(int device) {
  static std::mutex mutex;
  static auto& modules = *new std::map<int, CUmodule>();
  const std::lock_guard lock(mutex);
  CUmodule& module = modules[device];
  if (module == nullptr) HCCL_LIKE_CUDA(cuModuleLoadData, &module, kKernels);
  return module;
}

CUfunction kernel(int device, const char* kind, hcd_type type) {
  CUfunction function = nullptr;
  const std::string name = std::string(kind) + kTypeNames[type];
  HCCL_LIKE_CUDA(cuModuleGetFunction, &function, module_of(device), name.c_str());
  return function;
}

void require_defined(hcd_type type, hcd_op op) {
  if (static_cast<unsigned>(type) > HCD_COMPLEX128 || static_cast<unsigned>(op) > HCD_BIT_XOR ||
      !is_defined(type, op))
    throw Failure{HCD_UNSUPPORTED, "this operation is not defined for elements of this type"};
}

int reduce_many(int device, hcd_ref out, const hcd_ref* in, uint32_t sources, uint64_t count,
                hcd_type type, hcd_op op, double scale, double result_scale, hcd_stream stream) {
  return run(device, [&] {
    require_defined(type, op);
    if (sources > Sources::kMost)
      throw Failure{HCD_UNSUPPORTED, "a kernel combines no more than 64 arrays"};
    if (count == 0) return;
    CUdeviceptr to = address_of(out);
    Sources from{};
    for (uint32_t i = 0; i < sources; ++i)
      from.at[i] = reinterpret_cast<const void*>(address_of(in[i]));
    int which = op;
    void* arguments[] = {&to, &from, &sources, &count, &which, &scale, &result_scale};
    constexpr unsigned kThreads = 256, kMostBlocks = 1024;  // each thread takes several elements
    const auto wanted = (count + kThreads - 1) / kThreads;
    const auto blocks = static_cast<unsigned>(wanted < kMostBlocks ? wanted : kMostBlocks);
    HCCL_LIKE_CUDA(cuLaunchKernel, kernel(device, "reduce_", type), blocks, 1, 1, kThreads, 1, 1, 0,
                   stream_of(stream), arguments, nullptr);
    finish(stream);
  });
}

int reduce(int device, hcd_ref inout, hcd_ref in, uint64_t count, hcd_type type, hcd_op op,
           hcd_stream stream) {
  const hcd_ref both[] = {inout, in};
  return reduce_many(device, inout, both, 2, count, type, op, 1, 1, stream);
}

// A kernel cannot access other host memory.
CUdeviceptr word_of_device(const volatile uint64_t* word) {
  CUdeviceptr at = 0;
  HCCL_LIKE_CUDA(cuMemHostGetDevicePointer, &at, const_cast<uint64_t*>(word), 0);
  return at;
}

int all_reduce_small(int device, const hcd_small_group* group, hcd_ref out, hcd_ref in,
                     uint64_t count, hcd_type type, hcd_op op, double scale, double result_scale,
                     hcd_stream stream) {
  return run(device, [&] {
    require_defined(type, op);
    const uint64_t bytes = count * kTypeBytes[type];
    if (stream == 0 || group->ranks > SmallRanks::kMost || group->rank >= group->ranks ||
        bytes > group->payload || group->payload > HCD_SMALL_BYTES)
      throw Failure{HCD_INVALID, "this is no group, payload or stream of small all-reductions"};
    SmallRanks ranks{};
    for (uint32_t rank = 0; rank < group->ranks; ++rank)
      ranks.areas[rank] = reinterpret_cast<char*>(address_of(group->areas[rank]));
    ranks.rank = group->rank;
    ranks.ranks = group->ranks;
    ranks.payload = group->payload;
    ranks.state = reinterpret_cast<uint64_t*>(word_of_device(group->state));
    ranks.stop = reinterpret_cast<const uint64_t*>(word_of_device(group->stop));
    ranks.completed = reinterpret_cast<uint64_t*>(word_of_device(group->completed));
    ranks.fingerprint = group->fingerprint;
    CUdeviceptr to = address_of(out), from = address_of(in);
    int which = op;
    void* arguments[] = {&to, &from, &count, &which, &scale, &result_scale, &ranks};
    constexpr unsigned kThreads = 512;  // with 16 bytes each, a block has its part at once
    const auto parts = static_cast<unsigned>((bytes + kSmallPart - 1) / kSmallPart);
    HCCL_LIKE_CUDA(cuLaunchKernel, kernel(device, "small_", type), parts == 0 ? 1 : parts, 1, 1,
                   kThreads, 1, 1, 0, stream_of(stream), arguments, nullptr);
  });
}

int mem_alloc(int device, size_t bytes, void** base) {
  return run(device, [&] {
    CUdeviceptr made = 0;
    HCCL_LIKE_CUDA(cuMemAlloc, &made, bytes);
    *base = reinterpret_cast<void*>(made);
  });
}

int mem_free(int device, void* base) {
  return run(device, [&] { HCCL_LIKE_CUDA(cuMemFree, reinterpret_cast<CUdeviceptr>(base)); });
}

int host_alloc(int device, size_t bytes, void** host) {
  return run(device, [&] {
    HCCL_LIKE_CUDA(cuMemHostAlloc, host, bytes,
                   CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  });
}

int host_free(int device, void* host) {
  return run(device, [&] { HCCL_LIKE_CUDA(cuMemFreeHost, host); });
}

int host_register(int device, void* host, size_t bytes) {
  return run(device, [&] {
    HCCL_LIKE_CUDA(cuMemHostRegister, host, bytes,
                   CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  });
}

int host_unregister(int device, void* host) {
  return run(device, [&] { HCCL_LIKE_CUDA(cuMemHostUnregister, host); });
}

}  // namespace

void load_kernels(int device) { module_of(device); }

void add_memory(hcd_api& api) {
  api.copy_d2h = copy_d2h;
  api.copy_h2d = copy_h2d;
  api.copy_d2d = copy_d2d;
  api.reduce = reduce;
  api.reduce_many = reduce_many;
  api.all_reduce_small = all_reduce_small;
  api.mem_alloc = mem_alloc;
  api.mem_free = mem_free;
  api.host_alloc = host_alloc;
  api.host_free = host_free;
  api.host_register = host_register;
  api.host_unregister = host_unregister;
}

}  // namespace hccl_like::cuda
