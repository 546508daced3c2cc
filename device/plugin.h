/* The device plugin interface: the table that a vendor provides so that hccl-like can use a device.
 *
 * A plugin is a shared library that exports one function, `hcd_get_api`. It returns a table of
 * function pointers. The conventions are those of PJRT's C interface, adapted to a device whose
 * memory belongs to PyTorch:
 *
 *   - The table begins with its own size. New entries are appended, never inserted, and no entry
 *     ever changes. A reader checks HCD_HAS(api, entry) before it uses an entry. So an old plugin
 *     works with a new hccl-like and the reverse.
 *   - A null entry means "this device cannot do that". Every entry has a fall-back except the
 *     entries marked mandatory.
 *   - Device memory is named by {base, offset}: `base` is torch's storage().data_ptr() (an address
 *     or an opaque handle), `offset` is in bytes. Only the plugin may add the two.
 *   - Every call names its device. There is no current device, so calls may come from any thread.
 *   - Several threads may call all functions at once, except two calls that destroy the same
 *     object.
 *   - No function may take the GIL, call torch, throw, or wait for another process. Only these may
 *     wait for the device: `stream_sync`, `event_sync`, entries that create, destroy, allocate,
 *     free or register, and copies without HCD_CAP_ASYNC_COPY.
 *   - What is queued on a stream that captures a graph becomes part of the graph, done at each
 *     replay and not now. Entries that queue nothing work as ever during a capture.
 *   - The result is 0 or a negative hcd_status. After an error, `last_error` returns a sentence for
 *     the calling thread.
 *
 * This header is C99 and C++, and includes nothing of hccl-like.
 */
#ifndef HCCL_LIKE_DEVICE_PLUGIN_H_
#define HCCL_LIKE_DEVICE_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The interface's version. hcd_get_api returns null for a different major version. The minor
 * version only tells which entries existed when the plugin was compiled; the table's size tells
 * the same more exactly. */
#define HCD_MAJOR 1
#define HCD_MINOR 5

/* True if the table `api` is long enough to hold `entry` and the plugin filled it in. */
#define HCD_HAS(api, entry) \
  ((api)->size >= offsetof(hcd_api, entry) + sizeof((api)->entry) && (api)->entry != NULL)

typedef enum hcd_status {
  HCD_OK = 0,
  HCD_NOT_READY = -1,   /* queries only: not yet */
  HCD_UNSUPPORTED = -2, /* permanent for this entry; the call had no effect */
  HCD_INVALID = -3,     /* an argument is wrong */
  HCD_OUT_OF_MEMORY = -4,
  HCD_DEVICE_LOST = -5 /* sticky: no further call on this device can succeed */
} hcd_status;

/* What a device can do, as bits of hcd_device_info.caps. */
enum {
  /* host code may read and write torch's device pointers directly */
  HCD_CAP_HOST_DEREF = 1u << 0,
  /* copies may return before completion; host memory stays borrowed until then */
  HCD_CAP_ASYNC_COPY = 1u << 1,
  /* a mapping made by `map` may stay while the device works on the same memory */
  HCD_CAP_COHERENT_MAP = 1u << 2,
  /* usable in a child after fork() */
  HCD_CAP_FORK_SAFE = 1u << 3,
  /* Some calls of the device's runtime, such as an allocation of pinned memory, wait until all
   * streams are idle, and calls of other threads wait for them. Then no stream may wait for work
   * that a host thread has yet to queue, so large calls wait on the host: work.wait() blocks. */
  HCD_CAP_CALLS_AWAIT_IDLE = 1u << 4
};

/* A location in device memory. For a copy in stream order, torch may already have freed the
 * storage at the time of the call: as for any other work of those streams, the memory stays what
 * it was until the streams have passed that point. */
typedef struct hcd_ref {
  void* base;      /* torch's storage().data_ptr(): an address or a handle */
  uint64_t offset; /* bytes from the storage's beginning */
} hcd_ref;

/* The plugin's own handle of a device stream (e.g. a cudaStream_t), or 0 for "no stream: do it
 * now, blocking". */
typedef uint64_t hcd_stream;

/* Filled in by the plugin up to `size`, which the caller sets to sizeof(hcd_device_info). */
typedef struct hcd_device_info {
  size_t size;
  uint64_t caps;     /* HCD_CAP_... */
  int32_t numa_node; /* -1: unknown */
  char uuid[40];     /* text, unique to the device on all hosts; empty if unknown */
  char pci[16];      /* "0000:3b:00.0"; empty if none */
} hcd_device_info;

/* A token with which another process on this host maps the same device memory. Opaque to
 * hccl-like. */
typedef struct hcd_ipc_handle {
  unsigned char bytes[128];
} hcd_ipc_handle;

/* One point in a stream's order, made by event_record. Never 0. */
typedef uint64_t hcd_event;

/* The element type of a reduction. Bool: one byte, 0 or 1. */
typedef enum hcd_type {
  HCD_FLOAT32 = 0,
  HCD_FLOAT64 = 1,
  HCD_FLOAT16 = 2,
  HCD_BFLOAT16 = 3,
  HCD_FLOAT8_E4M3FN = 4,
  HCD_FLOAT8_E5M2 = 5,
  HCD_INT8 = 6,
  HCD_INT16 = 7,
  HCD_INT32 = 8,
  HCD_INT64 = 9,
  HCD_UINT8 = 10,
  HCD_UINT16 = 11,
  HCD_UINT32 = 12,
  HCD_UINT64 = 13,
  HCD_BOOL = 14,
  HCD_COMPLEX64 = 15,
  HCD_COMPLEX128 = 16
} hcd_type;

/* The operation on two elements. Floats of 8 and 16 bits are widened to 32 bits and rounded
 * once, to nearest even. NaN propagates, also through min and max. On bool, sum is logical or,
 * and product is logical and. */
typedef enum hcd_op {
  HCD_SUM = 0,
  HCD_PRODUCT = 1,
  HCD_MIN = 2,
  HCD_MAX = 3,
  HCD_BIT_AND = 4,
  HCD_BIT_OR = 5,
  HCD_BIT_XOR = 6
} hcd_op;

/* Capabilities beyond this table: a chain of structures that begin with this one. Readers skip
 * unknown types. Types below 0x10000 are reserved for hccl-like; vendors may use all others. */
typedef struct hcd_extension {
  size_t size;   /* of the structure that this begins, in the plugin's build */
  uint32_t type; /* HCD_EXTENSION_... */
  const struct hcd_extension* next;
} hcd_extension;

enum { HCD_EXTENSION_DMABUF = 1 };

/* Device memory allocated and freed as a whole. Filled in by the plugin up to `size`, which the
 * caller sets to sizeof(hcd_allocation). */
typedef struct hcd_allocation {
  size_t size;
  uint64_t identity[2]; /* unique among all allocations of this process, past and future */
  hcd_ref begin;
  uint64_t bytes;
  uint64_t offset; /* of the queried range in the allocation */
  void* address;   /* its beginning in the process's address space, if host memory can never lie
                      there; else null */
  uint32_t hmem;   /* libfabric's number for such memory (enum fi_hmem_iface); 0 if libfabric has
                      none */
} hcd_allocation;

/* Device memory for other devices: a network adapter accesses it without the host. Transports
 * use it to register memory (libfabric's FI_MR_DMABUF). Large calls that only move bytes then
 * need no staging. */
typedef struct hcd_dmabuf {
  hcd_extension head; /* type HCD_EXTENSION_DMABUF */
  /* Creates a file descriptor for the allocation that holds `ref`, and returns the offset of
   * `ref` in it. The descriptor is close-on-exec. The file keeps the memory alive: after the
   * allocation is freed, holders of the file or of objects derived from it still access valid
   * memory that belongs to no allocation. The device regains the memory when the last of them is
   * closed. */
  int (*export_fd)(int device, hcd_ref ref, size_t bytes, int* fd, uint64_t* offset);
  /* Optional; absent if the structure ends before this entry. Returns the allocation that holds
   * all of [ref, ref + bytes). Creates nothing, and must be cheap enough for a call per
   * operation. With it, hccl-like keeps the result of export_fd for later operations on the same
   * allocation, and releases it once the allocation is gone. Without it, network adapters get no
   * device memory. */
  int (*identify)(int device, hcd_ref ref, size_t bytes, hcd_allocation* out);
  /* Optional. Makes all writes by other devices to this device's memory, as far as known to the
   * caller, visible to all device work that begins after the return, including work queued
   * before. Null if the device needs no flush. */
  int (*flush)(int device);
} hcd_dmabuf;

/* Limits of all_reduce_small: bytes of a payload, and ranks. An area has a head and two payloads of
 * `payload` bytes, a multiple of 256. */
#define HCD_SMALL_BYTES (64u << 10)
#define HCD_SMALL_RANKS 64u
#define HCD_SMALL_HEAD(ranks) (1024 + UINT64_C(256) * (ranks))
#define HCD_SMALL_AREA(ranks, payload) (HCD_SMALL_HEAD(ranks) + UINT64_C(2) * (payload))

/* The ranks that make calls of all_reduce_small together, all the same ones in the same order, one
 * after the other. A captured call is made anew by each replay. */
typedef struct hcd_small_group {
  size_t size; /* of this structure, in the caller's build */
  uint32_t rank, ranks;
  uint64_t payload; /* for which the areas are; the same in all calls */
  /* By rank: device memory of HCD_SMALL_AREA bytes, of other ranks as opened by peer_open, aligned
   * to 256 bytes. All zero before the group's first call; then the content belongs to the plugin.
   */
  const hcd_ref* areas;
  /* Three host words, in memory of host_alloc or host_register where the plugin has these entries.
   * `state` is 1 while the kernel runs, and 0 afterwards; the host may replace 1 by 2 meanwhile. A
   * kernel waits for ranks that make a call with another fingerprint, or none. If `stop` is not 0,
   * kernels that wait for other ranks, and later ones, end without waiting.
   * `completed` is the number of the group's calls at the end of one that did not end early. After
   * one that did, all bytes of `out` are 0xff, and those of HCD_BOOL 1. */
  volatile uint64_t* state;
  const volatile uint64_t* stop;
  volatile uint64_t* completed;
  uint64_t fingerprint; /* of the call; equal on all ranks if their calls fit together */
} hcd_small_group;

typedef struct hcd_api {
  size_t size;      /* sizeof(hcd_api) in the plugin's build */
  const char* name; /* the PrivateUse1 name this plugin is for, e.g. "sim" */

  /* Mandatory. `init` is called once before all other entries, `fini` once at the end. `init`
   * may be called again after `fini`. */
  int (*init)(void);
  void (*fini)(void);
  /* Mandatory. A sentence for the last failure on the calling thread, valid until the thread's
   * next call. */
  const char* (*last_error)(void);

  /* Optional. Without it, the device has no capabilities and an unknown location. */
  int (*device_info)(int device, hcd_device_info* out);

  /* Optional. Translates a torch stream. `stream_id` is c10::Stream::id(). `native` is the
   * result of the device guard's getStreamNativeHandle, or null. Without this entry, the host
   * waits to keep the order. */
  int (*stream_from_torch)(int device, int64_t stream_id, void* native, hcd_stream* out);
  /* Mandatory. Blocks until all work queued on the stream so far is done and visible to the host.
   */
  int (*stream_sync)(int device, hcd_stream stream);

  /* Mandatory. Copies `bytes` in stream order. With HCD_CAP_ASYNC_COPY the call may return
   * early; the host memory then stays borrowed until the stream has passed this point. A copy
   * from memory of neither host_alloc nor host_register may wait for the stream's earlier work. */
  int (*copy_d2h)(int device, void* host, hcd_ref from, size_t bytes, hcd_stream stream);
  int (*copy_h2d)(int device, hcd_ref to, const void* host, size_t bytes, hcd_stream stream);

  /* Optional. Makes device memory readable and writable by the host at *host until
   * `unmap(*host)`. The caller waits for the device's earlier work first. Without
   * HCD_CAP_COHERENT_MAP, the device must not use the range meanwhile. Must be cheap enough for
   * a call per operation. In stream order `unmap` may come after the program has freed the memory,
   * and torch has returned it to the device. */
  int (*map)(int device, hcd_ref ref, size_t bytes, void** host);
  int (*unmap)(int device, void* host);

  /* Optional. Queues `fn(arg)` on the stream. It runs on a thread of the plugin's choice after
   * all earlier work of the stream; later work waits for its return. `fn` may block, and must
   * not call this table. */
  int (*host_func)(int device, hcd_stream stream, void (*fn)(void*), void* arg);

  /* Optional, both or none. Queues a wait until `*word >= value` (a 64-bit host word to which
   * any thread or process may store), or a store of `value` to `*word` in stream order. The word
   * outlives the queued work. A reader that sees the store sees all earlier work of the stream.
   * After the wait, the stream sees all writes made before the store that ended it. Used only if
   * `host_func` is null: the stream stores to one word and waits for another, and a polling
   * thread of hccl-like runs the function in between. */
  int (*stream_wait_value)(int device, hcd_stream stream, const volatile uint64_t* word,
                           uint64_t value);
  int (*stream_write_value)(int device, hcd_stream stream, volatile uint64_t* word, uint64_t value);

  /* Optional, all three or none. Lets another process of this host map the allocation that holds
   * `ref`. `export` fills a handle and returns the offset of `ref` in the mapping. `open` maps
   * it for the host at *host (writable), and `close` unmaps it. An exported allocation may be
   * freed; an open mapping stays valid memory until closed. */
  int (*ipc_export)(int device, hcd_ref ref, size_t bytes, hcd_ipc_handle* handle,
                    uint64_t* offset);
  int (*ipc_open)(int device, const hcd_ipc_handle* handle, void** host, size_t* bytes);
  int (*ipc_close)(int device, void* host);

  /* Optional, both or none, and only with the three entries above. Maps another process's export
   * for this device: until `peer_close(*base)`, *base is device memory for torch's operators
   * and, in a hcd_ref, for the copies and `map` of this table. The caller of `peer_close` has
   * waited for all work that uses the mapping. */
  int (*peer_open)(int device, const hcd_ipc_handle* handle, void** base, size_t* bytes);
  int (*peer_close)(int device, void* base);

  /* Entries since version 1.2 follow. */

  /* Optional, both or none. Creates a stream for the caller alone. `like` is any stream of the
   * device, from which the plugin derives data that it lacks (e.g. a context), or 0; with 0 the
   * plugin may refuse. A positive `priority` is a hint to serve the stream before others. Work
   * queued on the stream must proceed regardless of the waits of other streams: for example, a
   * large call's copies run while the caller's stream waits for their end. The caller destroys a
   * stream only when no thread waits for it. Work queued before the destruction still completes. */
  int (*stream_create)(int device, hcd_stream like, int priority, hcd_stream* out);
  int (*stream_destroy)(int device, hcd_stream stream);

  /* Optional, all five or none. `event_record` creates an event for all work queued on the
   * stream so far: one point, reached once, never recorded again. `stream_wait_event` makes
   * later work of a stream of the same device wait for the event, without blocking the caller.
   * `event_query` returns HCD_OK or HCD_NOT_READY; HCD_OK means that the results are visible to
   * the host. `event_sync` blocks until then. `event_destroy` is legal at any time: waits that
   * have begun continue. */
  int (*event_record)(int device, hcd_stream stream, hcd_event* out);
  int (*stream_wait_event)(int device, hcd_stream stream, hcd_event event);
  int (*event_query)(int device, hcd_event event);
  int (*event_sync)(int device, hcd_event event);
  int (*event_destroy)(int device, hcd_event event);

  /* Optional. Copies within the device, in stream order, as the other copies do. The ranges do
   * not overlap. */
  int (*copy_d2d)(int device, hcd_ref to, hcd_ref from, size_t bytes, hcd_stream stream);

  /* Optional. inout[i] = inout[i] op in[i] for `count` elements, in stream order, as the copies.
   * Both ranges have the elements' alignment and do not overlap. Returns HCD_UNSUPPORTED for a
   * type and op that the device lacks. */
  int (*reduce)(int device, hcd_ref inout, hcd_ref in, uint64_t count, hcd_type type, hcd_op op,
                hcd_stream stream);

  /* Optional, both or none. Device memory outside torch's allocator: *base with offset 0 is its
   * beginning. No queued work may use memory that is freed. */
  int (*mem_alloc)(int device, size_t bytes, void** base);
  int (*mem_free)(int device, void* base);

  /* Optional, both or none. Host memory, aligned to at least 64 bytes, with the fastest and
   * truly asynchronous copies of this device. No queued work may use memory that is freed. */
  int (*host_alloc)(int device, size_t bytes, void** host);
  int (*host_free)(int device, void* host);

  /* Optional, both or none. Gives existing host memory, possibly shared with other processes,
   * the same properties until it is unregistered by the same address. `host` and `bytes` are
   * multiples of the page size. Ranges registered at the same time do not overlap. Unregistering
   * an unregistered address returns HCD_INVALID. */
  int (*host_register)(int device, void* host, size_t bytes);
  int (*host_unregister)(int device, void* host);

  /* Optional: null, or the first element of a chain that lives as long as the library. */
  const hcd_extension* extensions;

  /* Entries since version 1.3 follow. */

  /* Optional, and only with ipc_export. Returns HCD_OK while the allocation that this process
   * exported as `handle` exists, and HCD_INVALID once it was freed. Memory that torch's
   * allocator caches for reuse still exists. Peers close their mapping of freed memory; if this
   * entry is null, they close a mapping after 256 calls without use. */
  int (*ipc_lives)(int device, const hcd_ipc_handle* handle);

  /* Entries since version 1.4 follow. */

  /* Optional. out[i] = (in[0][i] * scale op in[1][i] * scale op ...) * result_scale for `count`
   * elements of `sources` >= 2 arrays, from the first to the last, in stream order. Types and ops
   * as `reduce`. Floats of 8 and 16 bits are widened to 32 bits and rounded once, at the end. Both
   * factors are 1 unless the op is HCD_SUM and the elements are floats or complex. `out` may be one
   * of the arrays; there is no other overlap. The arrays may be memory opened by `peer_open`. The
   * list `in` belongs to the caller again when the call returns. */
  int (*reduce_many)(int device, hcd_ref out, const hcd_ref* in, uint32_t sources, uint64_t count,
                     hcd_type type, hcd_op op, double scale, double result_scale,
                     hcd_stream stream);

  /* Entries since version 1.5 follow. */

  /* Optional, and only with peer_open and reduce_many. One kernel for a whole all-reduction by the
   * ranks of a host, of at most group->payload bytes: out[i] = reduce_many of the ranks' in[i], in
   * the order of the ranks. On the stream, which must not be 0, the kernel waits for those of the
   * other ranks. `out` may be `in`; there is no other overlap. What `group` points to, but for the
   * areas and words, belongs to the caller again when the call returns. Types and ops as
   * `reduce_many`. */
  int (*all_reduce_small)(int device, const hcd_small_group* group, hcd_ref out, hcd_ref in,
                          uint64_t count, hcd_type type, hcd_op op, double scale,
                          double result_scale, hcd_stream stream);
} hcd_api;

/* The only exported symbol. Returns null if the plugin does not support interface version
 * `major`. */
typedef const hcd_api* (*hcd_get_api_fn)(int major, int minor);
#define HCD_GET_API_SYMBOL "hcd_get_api"

#ifdef __cplusplus
}
#endif

#endif /* HCCL_LIKE_DEVICE_PLUGIN_H_ */
