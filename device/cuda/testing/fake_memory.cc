// The fake driver's memory. Each allocation is a memory file, so that it can be exported.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device/cuda/testing/fake_driver.h"

namespace {

using hccl_like::fake_cuda::worker_of;

struct Allocation {
  size_t bytes;
  int file;
  unsigned long long number;
};
std::mutex mutex;
std::map<CUdeviceptr, Allocation> allocations;
std::map<uintptr_t, size_t> pinned;  // host memory visible to the device

constexpr size_t kPage = 4096;
size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Requires the mutex. The entry that holds `at`, or end().
template <class Map, class Size>
auto find_in(Map& map, typename Map::key_type at, Size size) {
  auto after = map.upper_bound(at);
  if (after == map.begin()) return map.end();
  const auto found = std::prev(after);
  return at < found->first + size(found->second) ? found : map.end();
}
auto find(CUdeviceptr at) {
  return find_in(allocations, at, [](const Allocation& one) { return one.bytes; });
}

CUresult copy(void* to, const void* from, size_t bytes, CUstream stream, CUdeviceptr checked) {
  {
    const std::lock_guard lock(mutex);
    const auto found = find(checked);
    if (found == allocations.end() || checked + bytes > found->first + found->second.bytes)
      return CUDA_ERROR_INVALID_VALUE;
  }
  worker_of(stream).enqueue([=] { std::memcpy(to, from, bytes); });
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemAlloc(CUdeviceptr* at, size_t bytes) {
  static unsigned long long made = 0;
  // As while a stream captures a graph.
  if (!hccl_like::fake_cuda::may_allocate()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const int file = ::memfd_create("fake_cuda", MFD_CLOEXEC);
  const size_t whole = whole_pages(bytes);
  if (bytes == 0 || file < 0 || ::ftruncate(file, static_cast<off_t>(whole)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  void* const mapped = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *at = reinterpret_cast<CUdeviceptr>(mapped);
  const std::lock_guard lock(mutex);
  allocations[*at] = {bytes, file, ++made};
  return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr at) {
  const std::lock_guard lock(mutex);
  const auto found = allocations.find(at);
  if (found == allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  ::munmap(reinterpret_cast<void*>(at), whole_pages(found->second.bytes));
  ::close(found->second.file);
  allocations.erase(found);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy(to, reinterpret_cast<void*>(from), bytes, stream, from);
}
// As the real driver, reads memory that is not pinned at the call.
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  CUdeviceptr seen = 0;
  if (cuMemHostGetDevicePointer(&seen, const_cast<void*>(from), 0) != CUDA_SUCCESS) {
    const auto* const begin = static_cast<const unsigned char*>(from);
    const auto kept = std::make_shared<std::vector<unsigned char>>(begin, begin + bytes);
    worker_of(stream).enqueue(
        [=] { std::memcpy(reinterpret_cast<void*>(to), kept->data(), bytes); });
    return CUDA_SUCCESS;
  }
  return copy(reinterpret_cast<void*>(to), from, bytes, stream, to);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes, stream, to);
}

CUresult cuMemHostAlloc(void** at, size_t bytes, unsigned) {
  *at = std::aligned_alloc(kPage, whole_pages(bytes));
  const std::lock_guard lock(mutex);
  pinned[reinterpret_cast<uintptr_t>(*at)] = bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void* at) {
  const std::lock_guard lock(mutex);
  if (pinned.erase(reinterpret_cast<uintptr_t>(at)) == 0) return CUDA_ERROR_INVALID_VALUE;
  std::free(at);
  return CUDA_SUCCESS;
}
CUresult cuMemHostRegister(void* at, size_t bytes, unsigned) {
  const std::lock_guard lock(mutex);
  const bool fresh = pinned.emplace(reinterpret_cast<uintptr_t>(at), bytes).second;
  return fresh ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}
CUresult cuMemHostUnregister(void* at) {
  const std::lock_guard lock(mutex);
  return pinned.erase(reinterpret_cast<uintptr_t>(at)) == 1 ? CUDA_SUCCESS
                                                            : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}
CUresult cuMemHostGetDevicePointer(CUdeviceptr* at, void* host, unsigned) {
  const std::lock_guard lock(mutex);
  const auto found =
      find_in(pinned, reinterpret_cast<uintptr_t>(host), [](size_t bytes) { return bytes; });
  if (found == pinned.end()) return CUDA_ERROR_INVALID_VALUE;
  *at = reinterpret_cast<CUdeviceptr>(host);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr at) {
  const std::lock_guard lock(mutex);
  const auto found = find(at);
  if (found == allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  *base = found->first;
  *bytes = found->second.bytes;
  return CUDA_SUCCESS;
}
CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr at) {
  const std::lock_guard lock(mutex);
  if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
    const auto host =
        find_in(pinned, static_cast<uintptr_t>(at), [](size_t bytes) { return bytes; });
    if (host == pinned.end()) return CUDA_ERROR_INVALID_VALUE;
    *static_cast<unsigned*>(value) = CU_MEMORYTYPE_HOST;
    return CUDA_SUCCESS;
  }
  const auto found = find(at);
  if (found == allocations.end() || attribute != CU_POINTER_ATTRIBUTE_BUFFER_ID)
    return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(value, &found->second.number, sizeof found->second.number);
  return CUDA_SUCCESS;
}
CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr at, size_t bytes,
                                       CUmemRangeHandleType, unsigned long long) {
  const std::lock_guard lock(mutex);
  const auto found = allocations.find(at);  // the file begins where the allocation does
  if (found == allocations.end() || at % kPage != 0 || bytes % kPage != 0)
    return CUDA_ERROR_INVALID_VALUE;
  *static_cast<int*>(handle) = ::dup(found->second.file);
  return CUDA_SUCCESS;
}
CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget,
                                    CUflushGPUDirectRDMAWritesScope) {
  return CUDA_SUCCESS;
}
CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr at) {
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &at, sizeof at);
  return CUDA_SUCCESS;
}
CUresult cuIpcOpenMemHandle(CUdeviceptr*, CUipcMemHandle, unsigned) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuIpcCloseMemHandle(CUdeviceptr) { return CUDA_ERROR_INVALID_VALUE; }
