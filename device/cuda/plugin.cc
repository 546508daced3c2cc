// The CUDA plugin: the table and the device information.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "device/cuda/entries.h"

namespace hccl_like::cuda {
namespace {

thread_local std::string last_failure;

int init() {
  try {
    // Streams share hardware queues. With all queues waiting (8 by default, 32 at most), every
    // other stream is held up.
    ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
    HCCL_LIKE_CUDA(cuInit, 0);
    int count = 0;
    HCCL_LIKE_CUDA(cuDeviceGetCount, &count);
    return HCD_OK;
  } catch (const Failure& failure) {
    return remember(failure);
  }
}

void fini() {}  // the driver goes with the process

int numa_node_of(std::string pci) {
  std::transform(pci.begin(), pci.end(), pci.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  int node = -1;
  std::ifstream("/sys/bus/pci/devices/" + pci + "/numa_node") >> node;
  return node;
}

std::string text_of(const CUuuid& uuid) {
  std::string text = "GPU-";
  for (const char byte : uuid.bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[(byte >> 4) & 15];
    text += kDigits[byte & 15];
  }
  return text;
}

int device_info(int device, hcd_device_info* out) {
  return run(device, [&] {
    hcd_device_info info{};
    info.size = out->size;
    info.caps = HCD_CAP_ASYNC_COPY | HCD_CAP_CALLS_AWAIT_IDLE;
    info.numa_node = -1;
    CUdevice handle = 0;
    HCCL_LIKE_CUDA(cuDeviceGet, &handle, device);
    CUuuid uuid{};
    HCCL_LIKE_CUDA(cuDeviceGetUuid, &uuid, handle);
    text_of(uuid).copy(info.uuid, sizeof info.uuid - 1);
    HCCL_LIKE_CUDA(cuDeviceGetPCIBusId, info.pci, sizeof info.pci, handle);
    info.numa_node = numa_node_of(info.pci);
    load_kernels(device);
    std::memcpy(out, &info, std::min(out->size, sizeof info));
  });
}

const hcd_api& table() {
  static const hcd_api complete = [] {
    hcd_api api{};
    api.size = sizeof api;
    api.name = "cuda";
    api.init = init;
    api.fini = fini;
    api.last_error = last_error;
    api.device_info = device_info;
    add_streams(api);
    add_memory(api);
    add_peers(api);
    return api;
  }();
  return complete;
}

}  // namespace

int remember(const Failure& failure) noexcept {
  last_failure = failure.sentence;
  return failure.status;
}

const char* last_error() noexcept { return last_failure.c_str(); }

}  // namespace hccl_like::cuda

extern "C" __attribute__((visibility("default"))) const hcd_api* hcd_get_api(int major, int) {
  return major == HCD_MAJOR ? &hccl_like::cuda::table() : nullptr;
}
