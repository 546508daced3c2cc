/* A device plugin that is another one (SOUND_PLUGIN) with a fault (FAULT): at load by name, or
 * "ENTRY:N", which fails from its Nth call on (copy_h2d: at its Nth call alone). */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/plugin.h"

static hcd_api table;
static hcd_api complete;
static int calls;

static int fault_is(const char* name) {
  const char* const fault = getenv("FAULT");
  return fault != NULL && strcmp(fault, name) == 0;
}

/* True from the Nth call of this entry on. */
static int fails(const char* entry) {
  const char* const fault = getenv("FAULT");
  const size_t length = strlen(entry);
  if (fault == NULL || strncmp(fault, entry, length) != 0 || fault[length] != ':') return 0;
  return ++calls >= atoi(fault + length + 1);
}

/* At the Nth call alone. */
static int fails_once(const char* entry) {
  return fails(entry) && calls == atoi(getenv("FAULT") + strlen(entry) + 1);
}

static const char* sentence;

static const char* last_error(void) { return sentence != NULL ? sentence : complete.last_error(); }

static int broken(void) {
  sentence = "the cable was pulled";
  return HCD_DEVICE_LOST;
}

static void hang(void) {
  for (;;) pause();
}

static int init(void) {
  if (fault_is("hang in init")) hang();
  if (fault_is("abort in init")) abort();
  if (fault_is("init")) return broken();
  return complete.init();
}

static int map(int device, hcd_ref ref, size_t bytes, void** host) {
  return fails("map") ? broken() : complete.map(device, ref, bytes, host);
}

static int host_func(int device, hcd_stream stream, void (*fn)(void*), void* arg) {
  return fails("host_func") ? broken() : complete.host_func(device, stream, fn, arg);
}

static int copy_d2h(int device, void* host, hcd_ref from, size_t bytes, hcd_stream stream) {
  return fails("copy_d2h") ? broken() : complete.copy_d2h(device, host, from, bytes, stream);
}

static int copy_h2d(int device, hcd_ref to, const void* host, size_t bytes, hcd_stream stream) {
  return fails_once("copy_h2d") ? broken() : complete.copy_h2d(device, to, host, bytes, stream);
}

static int copy_d2d(int device, hcd_ref to, hcd_ref from, size_t bytes, hcd_stream stream) {
  return fails("copy_d2d") ? broken() : complete.copy_d2d(device, to, from, bytes, stream);
}

static int reduce_many(int device, hcd_ref out, const hcd_ref* in, uint32_t sources,
                       uint64_t count, hcd_type type, hcd_op op, double scale, double result_scale,
                       hcd_stream stream) {
  return fails("reduce_many") ? broken()
                              : complete.reduce_many(device, out, in, sources, count, type, op,
                                                     scale, result_scale, stream);
}

static int stream_write_value(int device, hcd_stream stream, volatile uint64_t* word,
                              uint64_t value) {
  return fails("stream_write_value") ? broken()
                                     : complete.stream_write_value(device, stream, word, value);
}

static int ipc_export(int device, hcd_ref ref, size_t bytes, hcd_ipc_handle* handle, uint64_t* offset) {
  return fails("ipc_export") ? broken() : complete.ipc_export(device, ref, bytes, handle, offset);
}

static int peer_open(int device, const hcd_ipc_handle* handle, void** base, size_t* bytes) {
  return fails("peer_open") ? broken() : complete.peer_open(device, handle, base, bytes);
}

__attribute__((constructor)) static void constructor(void) {
  if (fault_is("crash in a constructor")) *(volatile int*)NULL = 1;
}

const hcd_api* hcd_get_api(int major, int minor) {
  if (fault_is("null table")) return NULL;
  if (fault_is("hang in hcd_get_api")) hang();
  if (fault_is("crash in hcd_get_api")) *(volatile int*)NULL = 1;
  void* const library = dlopen(getenv("SOUND_PLUGIN"), RTLD_NOW);
  if (library == NULL) return NULL;
  const hcd_get_api_fn get_api = (hcd_get_api_fn)dlsym(library, HCD_GET_API_SYMBOL);
  const hcd_api* const found = get_api(major, minor);
  if (found == NULL || found->size > sizeof(table)) return NULL;
  memcpy(&complete, found, found->size);
  table = complete;
  table.last_error = last_error;
  table.init = init;
  table.copy_d2h = copy_d2h;
  table.copy_h2d = copy_h2d;
  table.map = map;
  table.host_func = host_func;
  table.copy_d2d = copy_d2d;
  table.reduce_many = reduce_many;
  table.stream_write_value = stream_write_value;
  table.ipc_export = ipc_export;
  table.peer_open = peer_open;
  if (fault_is("size")) table.size = 3;
  if (fault_is("null entry")) table.copy_h2d = NULL;
  if (fault_is("half a pair")) table.unmap = NULL;
  if (fault_is("no name")) table.name = NULL;
  if (fault_is("another name")) table.name = "other";
  return &table;
}
