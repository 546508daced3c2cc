/* The smallest device plugin that lets every collective run at full speed: what
 * docs/plugin-guide.md goes through.
 *
 * It is for the simulated accelerator, and knows of it what the simulator's own header says: put
 * your runtime's functions in the place of those that begin with "sim". */
#include <stdio.h>
#include <string.h>

#include "device/plugin.h"
#include "sim_runtime.h"

/* 1. Errors: the runtime's codes become hcd_status; its sentence stays where last_error finds it.
 */
static int status_of(simError error) {
  switch (error) {
    case simSuccess:
      return HCD_OK;
    case simErrorInvalidValue:
      return HCD_INVALID;
    case simErrorMemoryAllocation:
      return HCD_OUT_OF_MEMORY;
    case simErrorNotSupported:
      return HCD_UNSUPPORTED;
    default:
      return HCD_DEVICE_LOST;
  }
}

static const char* last_error(void) { return simGetLastErrorString(); }

/* 2. The beginning and the end. Touch no more of the device than it takes to say that it is not
 * there. */
static int init(void) {
  int count = 0;
  return status_of(simGetDeviceCount(&count));
}

static void fini(void) {}

/* 3. Memory is {base, offset}. Where base is an address, they add up; where it is a handle, pass
 * both on. */
static void* address(hcd_ref ref) { return (char*)ref.base + ref.offset; }

/* 4. Streams are the runtime's own, in an integer; 0 is none. */
static simStream_t stream_of(hcd_stream stream) { return (simStream_t)(uintptr_t)stream; }

static int stream_sync(int device, hcd_stream stream) {
  return status_of(simStreamSynchronize(device, stream_of(stream)));
}

/* 5. The two copies. With these, everything works: data goes through host memory, and calls wait on
 * the host. */
static int copy_d2h(int device, void* host, hcd_ref from, size_t bytes, hcd_stream stream) {
  return status_of(
      simMemcpyAsync(device, host, address(from), bytes, simMemcpyDeviceToHost, stream_of(stream)));
}

static int copy_h2d(int device, hcd_ref to, const void* host, size_t bytes, hcd_stream stream) {
  return status_of(
      simMemcpyAsync(device, address(to), host, bytes, simMemcpyHostToDevice, stream_of(stream)));
}

/* 6. What the device is. No more is filled in than the caller has room for. */
static int device_info(int device, hcd_device_info* out) {
  hcd_device_info info;
  memset(&info, 0, sizeof(info));
  info.size = out->size;
  info.caps = HCD_CAP_ASYNC_COPY | HCD_CAP_COHERENT_MAP;
  info.numa_node = -1;
  snprintf(info.uuid, sizeof(info.uuid), "minimal-%d", device);
  memcpy(out, &info, out->size < sizeof(info) ? out->size : sizeof(info));
  return HCD_OK;
}

/* 7. torch's streams, and functions on them: calls follow the stream's order, and no call blocks
 * the host. torch hands over the runtime's own handle if the device's guard has
 * getStreamNativeHandle, and else only its number. */
static int stream_from_torch(int device, int64_t stream_id, void* native, hcd_stream* out) {
  simStream_t stream = (simStream_t)native;
  if (stream == NULL) {
    const int status = status_of(simStreamGet(device, stream_id, &stream));
    if (status != HCD_OK) return status;
  }
  *out = (hcd_stream)(uintptr_t)stream;
  return HCD_OK;
}

static int host_func(int device, hcd_stream stream, void (*fn)(void*), void* arg) {
  return status_of(simLaunchHostFunc(device, stream_of(stream), fn, arg));
}

/* 8. The host's view of device memory: data moves from where it is to where it belongs, with no
 * copy on the way. */
static int map(int device, hcd_ref ref, size_t bytes, void** host) {
  return status_of(simHostGetPointer(device, host, address(ref), bytes));
}

static int unmap(int device, void* host) {
  (void)device, (void)host; /* there is nothing to end */
  return HCD_OK;
}

/* 9. Memory without torch: hccl_like_plugin_contract tries the plugin on it. */
static int mem_alloc(int device, size_t bytes, void** base) {
  return status_of(simMalloc(device, base, bytes));
}

static int mem_free(int device, void* base) { return status_of(simFree(device, base)); }

/* 10. The table. What is not named is null, and means "cannot". */
static const hcd_api api = {
    .size = sizeof(hcd_api),
    .name = "sim",
    .init = init,
    .fini = fini,
    .last_error = last_error,
    .device_info = device_info,
    .stream_from_torch = stream_from_torch,
    .stream_sync = stream_sync,
    .copy_d2h = copy_d2h,
    .copy_h2d = copy_h2d,
    .map = map,
    .unmap = unmap,
    .host_func = host_func,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
};

__attribute__((visibility("default"))) const hcd_api* hcd_get_api(int major, int minor) {
  (void)minor; /* the table's size says which entries there are */
  return major == HCD_MAJOR ? &api : NULL;
}
