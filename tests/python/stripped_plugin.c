/* A device plugin that is another one (PLUGIN) without some of its entries (WITHOUT, by the names
 * below); one that must be there fails. It counts what is copied between the device and the host.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "device/plugin.h"

static hcd_api table;
static const hcd_api* complete;
static hcd_dmabuf files;
static atomic_ullong copied;

unsigned long long copied_bytes(void) { return copied; }

static int copy_d2h(int device, void* host, hcd_ref from, size_t bytes, hcd_stream stream) {
  copied += bytes;
  return complete->copy_d2h(device, host, from, bytes, stream);
}
static int copy_h2d(int device, hcd_ref to, const void* host, size_t bytes, hcd_stream stream) {
  copied += bytes;
  return complete->copy_h2d(device, to, host, bytes, stream);
}
static int export_nothing(int device, hcd_ref ref, size_t bytes, int* fd, uint64_t* offset) {
  (void)device, (void)ref, (void)bytes, (void)fd, (void)offset;
  return HCD_UNSUPPORTED;
}

static int without(const char* entry) {
  const char* const names = getenv("WITHOUT");
  return names != NULL && strstr(names, entry) != NULL;
}

static int refuse(int device, void* host, hcd_ref from, size_t bytes, hcd_stream stream) {
  (void)device, (void)host, (void)from, (void)bytes, (void)stream;
  return HCD_INVALID;
}

const hcd_api* hcd_get_api(int major, int minor) {
  void* const library = dlopen(getenv("PLUGIN"), RTLD_NOW);
  if (library == NULL) return NULL;
  const hcd_get_api_fn get_api = (hcd_get_api_fn)dlsym(library, HCD_GET_API_SYMBOL);
  complete = get_api(major, minor);
  if (complete == NULL || complete->size > sizeof(table)) return NULL;
  memcpy(&table, complete, complete->size);
  table.copy_d2h = copy_d2h;
  table.copy_h2d = copy_h2d;
  if (getenv("NAMED") != NULL) table.name = getenv("NAMED");
  if (without("files")) table.extensions = NULL;
  if (without("descriptors") && complete->extensions->type == HCD_EXTENSION_DMABUF) {
    files = *(const hcd_dmabuf*)complete->extensions;
    files.export_fd = export_nothing;
    table.extensions = &files.head;
  }
  if (without("copies within")) table.copy_d2d = NULL;
  if (without("export")) {
    table.ipc_export = NULL;
    table.ipc_open = NULL;
    table.ipc_close = NULL;
    table.ipc_lives = NULL;
  }
  if (without("peers")) {
    table.peer_open = NULL;
    table.peer_close = NULL;
  }
  if (without("map")) {
    table.map = NULL;
    table.unmap = NULL;
  }
  if (without("host functions")) table.host_func = NULL;
  if (without("words")) {
    table.stream_wait_value = NULL;
    table.stream_write_value = NULL;
  }
  if (without("torch streams")) table.stream_from_torch = NULL;
  if (without("own streams")) {
    table.stream_create = NULL;
    table.stream_destroy = NULL;
  }
  if (without("events")) {
    table.event_record = NULL;
    table.stream_wait_event = NULL;
    table.event_query = NULL;
    table.event_sync = NULL;
    table.event_destroy = NULL;
  }
  if (without("registration")) {
    table.host_register = NULL;
    table.host_unregister = NULL;
  }
  if (without("host memory")) {
    table.host_alloc = NULL;
    table.host_free = NULL;
  }
  if (without("copies")) table.copy_d2h = refuse;
  if (without("small sums")) table.all_reduce_small = NULL;
  if (without("many sources")) table.reduce_many = NULL;
  if (without("kernels")) table.reduce = NULL;
  return &table;
}
