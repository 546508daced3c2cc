#include "device/host/host_api.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "device/host/host_error.h"
#include "device/host/host_ipc.h"

namespace hccl_like {
namespace {

using host::fail;

std::byte* address(hcd_ref ref) { return static_cast<std::byte*>(ref.base) + ref.offset; }

int init() { return HCD_OK; }
void fini() {}

int device_info(int, hcd_device_info* out) {
  hcd_device_info info{};
  info.size = out->size;
  info.caps = HCD_CAP_HOST_DEREF | HCD_CAP_COHERENT_MAP | HCD_CAP_FORK_SAFE;
  info.numa_node = -1;
  std::memcpy(out, &info, std::min(out->size, sizeof(info)));
  return HCD_OK;
}

int stream_sync(int, hcd_stream stream) {
  return stream == 0 ? HCD_OK : fail(HCD_INVALID, "the CPU has no streams; pass 0");
}

int copy(void* to, const void* from, size_t bytes, hcd_stream stream) {
  if (stream != 0) return fail(HCD_INVALID, "the CPU has no streams; pass 0");
  if (bytes != 0) std::memcpy(to, from, bytes);  // memcpy must not get null pointers
  return HCD_OK;
}

int copy_d2h(int, void* host, hcd_ref from, size_t bytes, hcd_stream stream) {
  return copy(host, address(from), bytes, stream);
}
int copy_h2d(int, hcd_ref to, const void* host, size_t bytes, hcd_stream stream) {
  return copy(address(to), host, bytes, stream);
}

int map(int, hcd_ref ref, size_t, void** host) {
  *host = address(ref);
  return HCD_OK;
}
int unmap(int, void*) { return HCD_OK; }

// Other entries are null: no streams, no queued work. A mapped peer's memory is plain memory, so
// there is no peer_open.
constexpr hcd_api kApi = {
    .size = sizeof(hcd_api),
    .name = "cpu",
    .init = init,
    .fini = fini,
    .last_error = host::last_error,
    .device_info = device_info,
    .stream_sync = stream_sync,
    .copy_d2h = copy_d2h,
    .copy_h2d = copy_h2d,
    .map = map,
    .unmap = unmap,
    .ipc_export = host::ipc_export,
    .ipc_open = host::ipc_open,
    .ipc_close = host::ipc_close,
    .ipc_lives = host::ipc_lives,
};

}  // namespace

const hcd_api& host_api() noexcept { return kApi; }

}  // namespace hccl_like
