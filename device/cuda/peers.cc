// Exports device memory to other processes and devices.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "device/cuda/entries.h"

namespace hccl_like::cuda {
namespace {

struct Range {
  CUdeviceptr base = 0;
  size_t bytes = 0;
};

// The allocation that holds `ref`.
Range allocation_of(hcd_ref ref, size_t bytes) {
  Range range;
  const CUdeviceptr at = address_of(ref);
  HCCL_LIKE_CUDA(cuMemGetAddressRange, &range.base, &range.bytes, at);
  if (at + bytes > range.base + range.bytes)
    throw Failure{HCD_INVALID, "the range leaves its allocation"};
  return range;
}

uint64_t allocation_number(const Range& range) {
  unsigned long long number = 0;
  HCCL_LIKE_CUDA(cuPointerGetAttribute, &number, CU_POINTER_ATTRIBUTE_BUFFER_ID, range.base);
  return number;
}

// Content of a handle's 128 bytes. The driver may reuse a handle for a later allocation at the same
// address; the allocation number distinguishes the two.
struct Token {
  CUipcMemHandle handle;
  uint64_t bytes;
  uint64_t process;
  uint64_t allocation;
  CUdeviceptr base;  // in the exporting process
};
Token token_of(const hcd_ipc_handle* handle) {
  Token token;
  std::memcpy(&token, handle->bytes, sizeof token);
  return token;
}
static_assert(sizeof(Token) <= sizeof(hcd_ipc_handle));

int ipc_export(int device, hcd_ref ref, size_t bytes, hcd_ipc_handle* handle, uint64_t* offset) {
  return run(device, [&] {
    const Range range = allocation_of(ref, bytes);
    Token token{};
    HCCL_LIKE_CUDA(cuIpcGetMemHandle, &token.handle, range.base);
    token.bytes = range.bytes;
    token.process = static_cast<uint64_t>(::getpid());
    token.allocation = allocation_number(range);
    token.base = range.base;
    *handle = {};
    std::memcpy(handle->bytes, &token, sizeof token);
    *offset = address_of(ref) - range.base;
  });
}

int ipc_open(int, const hcd_ipc_handle*, void**, size_t*) {
  return remember({HCD_UNSUPPORTED, "the host cannot map memory of a CUDA device"});
}

int ipc_close(int, void*) {
  return remember({HCD_INVALID, "the host maps no memory of a CUDA device"});
}

int ipc_lives(int device, const hcd_ipc_handle* handle) {
  return run(device, [&] {
    const Token token = token_of(handle);
    if (allocation_number({token.base, token.bytes}) != token.allocation)
      throw Failure{HCD_INVALID, "the allocation was freed"};
  });
}

int peer_open(int device, const hcd_ipc_handle* handle, void** base, size_t* bytes) {
  return run(device, [&] {
    const Token token = token_of(handle);
    if (token.process == static_cast<uint64_t>(::getpid()))
      throw Failure{HCD_UNSUPPORTED, "a process cannot open what it exported itself"};
    CUdeviceptr opened = 0;
    HCCL_LIKE_CUDA(cuIpcOpenMemHandle, &opened, token.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    *base = reinterpret_cast<void*>(opened);
    *bytes = token.bytes;
  });
}

int peer_close(int device, void* base) {
  return run(device,
             [&] { HCCL_LIKE_CUDA(cuIpcCloseMemHandle, reinterpret_cast<CUdeviceptr>(base)); });
}

// The driver exports whole host pages.
int export_fd(int device, hcd_ref ref, size_t bytes, int* fd, uint64_t* offset) {
  return run(device, [&] {
    allocation_of(ref, bytes);
    const auto page = static_cast<CUdeviceptr>(::sysconf(_SC_PAGESIZE));
    const CUdeviceptr begin = address_of(ref) / page * page;
    const CUdeviceptr end = (address_of(ref) + bytes + page - 1) / page * page;
    int made = -1;
    HCCL_LIKE_CUDA(cuMemGetHandleForAddressRange, &made, begin, end - begin,
                   CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    ::fcntl(made, F_SETFD, FD_CLOEXEC);
    *fd = made;
    *offset = address_of(ref) - begin;
  });
}

// Host and devices share one address space.
int identify(int device, hcd_ref ref, size_t bytes, hcd_allocation* out) {
  return run(device, [&] {
    constexpr uint32_t kCuda = 1;  // libfabric's FI_HMEM_CUDA
    const Range range = allocation_of(ref, bytes);
    hcd_allocation found{};
    found.size = out->size;
    found.identity[0] = allocation_number(range);
    found.identity[1] = range.base;
    found.begin = {reinterpret_cast<void*>(range.base), 0};
    found.bytes = range.bytes;
    found.offset = address_of(ref) - range.base;
    found.address = reinterpret_cast<void*>(range.base);
    found.hmem = kCuda;
    std::memcpy(out, &found, std::min(out->size, sizeof found));
  });
}

int flush(int device) {
  return run(device, [&] {
    HCCL_LIKE_CUDA(cuFlushGPUDirectRDMAWrites, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                   CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
  });
}

const hcd_dmabuf kDmabuf{
    {sizeof(hcd_dmabuf), HCD_EXTENSION_DMABUF, nullptr}, export_fd, identify, flush};

}  // namespace

void add_peers(hcd_api& api) {
  api.ipc_export = ipc_export;
  api.ipc_open = ipc_open;
  api.ipc_close = ipc_close;
  api.ipc_lives = ipc_lives;
  api.peer_open = peer_open;
  api.peer_close = peer_close;
  api.extensions = &kDmabuf.head;
}

}  // namespace hccl_like::cuda
