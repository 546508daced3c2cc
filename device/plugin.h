/* The device plugin interface: what a vendor fills in so that hccl-like can use his device.
 *
 * A plugin is a shared library that exports one function, `hcd_get_api`. It returns a table of
 * function pointers. The conventions are those of PJRT's C interface, adapted to a device whose
 * memory belongs to PyTorch:
 *
 *   - The table begins with its own size. New entries are appended, never inserted, and no entry
 * ever changes; a reader asks HCD_HAS(api, entry) before it uses one. So an old plugin works with a
 * new hccl-like and the reverse.
 *   - A null entry means "this device cannot do that". Everything has a fall-back except the
 * entries marked mandatory.
 *   - Device memory is named by {base, offset}: `base` is what torch's storage().data_ptr() gives
 * (an address, or an opaque handle), `offset` is in bytes. The two are never added up outside the
 * plugin.
 *   - Every call names its device. There is no current device, so calls may come from any thread.
 *   - All functions may be called by several threads at once, except two calls that destroy the
 * same object.
 *   - No function may take the GIL, call torch, throw, or wait for another process. Only
 * `stream_sync` and `event_sync`, whatever creates, destroys, allocates, frees or registers, and
 * copies when HCD_CAP_ASYNC_COPY is absent, may wait for the device.
 *   - The result is 0 or a negative hcd_status. After an error, `last_error` gives a sentence for
 * the calling thread.
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

/* The interface's version. A different major version is refused by hcd_get_api (it returns null); a
 * minor version only says which entries existed when the plugin was compiled, which the table's
 * size says more exactly. */
#define HCD_MAJOR 1
#define HCD_MINOR 3

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
  /* torch's device pointers may be read and written by host code as they are */
  HCD_CAP_HOST_DEREF = 1u << 0,
  /* copies may return before they are done; host memory stays borrowed until then */
  HCD_CAP_ASYNC_COPY = 1u << 1,
  /* a mapping made by `map` may stay while the device works on the same memory */
  HCD_CAP_COHERENT_MAP = 1u << 2,
  /* usable in a child after fork() */
  HCD_CAP_FORK_SAFE = 1u << 3
};

/* A place in device memory. For a copy in the order of streams torch may have given the storage
 * back by the time of the call: the memory is what it was until the streams have passed that point,
 * as for any other work of theirs. */
typedef struct hcd_ref {
  void* base;      /* torch's storage().data_ptr(): an address or a handle */
  uint64_t offset; /* bytes from the storage's beginning */
} hcd_ref;

/* A stream of the device in the plugin's own terms (a cudaStream_t, say), or 0 for "no stream: do
 * it now, blocking". */
typedef uint64_t hcd_stream;

/* Filled in by the plugin, no further than `size`, which the caller sets to
 * sizeof(hcd_device_info). */
typedef struct hcd_device_info {
  size_t size;
  uint64_t caps;     /* HCD_CAP_... */
  int32_t numa_node; /* -1: unknown */
  char uuid[40];     /* text, unique to the device on all hosts; empty if unknown */
  char pci[16];      /* "0000:3b:00.0"; empty if none */
} hcd_device_info;

/* A token that another process on this host turns into a mapping of the same device memory. Opaque
 * to hccl-like. */
typedef struct hcd_ipc_handle {
  unsigned char bytes[128];
} hcd_ipc_handle;

/* One point of a stream's order, made by event_record. Never 0. */
typedef uint64_t hcd_event;

/* What the elements of a reduction are. Bool: one byte, 0 or 1. */
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

/* How two elements become one. Floats of 8 and 16 bits are widened to 32 and rounded once, to
 * nearest even; a NaN spreads, also through min and max. On bool, sum is a logical or, and product
 * a logical and. */
typedef enum hcd_op {
  HCD_SUM = 0,
  HCD_PRODUCT = 1,
  HCD_MIN = 2,
  HCD_MAX = 3,
  HCD_BIT_AND = 4,
  HCD_BIT_OR = 5,
  HCD_BIT_XOR = 6
} hcd_op;

/* What a device can do beyond this table: a chain of structures that begin with this one. A reader
 * passes over types that it does not know. Types below 0x10000 are hccl-like's; a vendor uses those
 * above for himself. */
typedef struct hcd_extension {
  size_t size;   /* of the structure that this begins, in the plugin's build */
  uint32_t type; /* HCD_EXTENSION_... */
  const struct hcd_extension* next;
} hcd_extension;

enum { HCD_EXTENSION_DMABUF = 1 };

/* A piece of device memory that is allocated and freed as a whole. Filled in by the plugin, no
 * further than `size`, which the caller sets to sizeof(hcd_allocation). */
typedef struct hcd_allocation {
  size_t size;
  uint64_t identity[2]; /* that no other allocation of this process has, had, or will have */
  hcd_ref begin;
  uint64_t bytes;
  uint64_t offset; /* of what was asked about, in it */
  void* address;   /* where it begins in the process's address space, if nothing of the host's can
                      ever lie there; else null */
  uint32_t hmem;   /* what libfabric calls such memory (its enum fi_hmem_iface); 0 if it has no name
                      for it */
} hcd_allocation;

/* Device memory for other devices: a network adapter reads and writes it without the host.
 * Transports register memory by it (libfabric's FI_MR_DMABUF), and large calls that only move bytes
 * need no staging then. */
typedef struct hcd_dmabuf {
  hcd_extension head; /* type HCD_EXTENSION_DMABUF */
  /* Makes a file descriptor that stands for the allocation that holds `ref`, and says at which
   * offset of it `ref` lies. Closed on exec. The file keeps the memory: who still has it, or
   * something derived from it, when the allocation is freed sees what is nobody's any more, and the
   * device gets it back when the last of that is closed. */
  int (*export_fd)(int device, hcd_ref ref, size_t bytes, int* fd, uint64_t* offset);
  /* Optional; a structure that ends before it has none. Says which allocation holds all of [ref,
   * ref + bytes). Makes nothing, and is cheap enough to be called for each operation. With it what
   * export_fd made is kept for the next operation on the same allocation, and let go of when the
   * allocation is gone. Without it network adapters are not given memory. */
  int (*identify)(int device, hcd_ref ref, size_t bytes, hcd_allocation* out);
  /* Optional. What other devices had written to the device's memory, as far as the caller knows, is
   * seen by all of its work that begins after this returned, also by what was queued before. Null
   * where that is so by itself. */
  int (*flush)(int device);
} hcd_dmabuf;

typedef struct hcd_api {
  size_t size;      /* sizeof(hcd_api) in the plugin's build */
  const char* name; /* the PrivateUse1 name this plugin is for, e.g. "sim" */

  /* Mandatory. Called once before anything else and once at the end; `init` may be called again
   * after `fini`. */
  int (*init)(void);
  void (*fini)(void);
  /* Mandatory. A sentence for the last failure on the calling thread; valid until the thread's next
   * call. */
  const char* (*last_error)(void);

  /* Optional. Without it: no capability, place unknown. */
  int (*device_info)(int device, hcd_device_info* out);

  /* Optional. Translates a torch stream. `stream_id` is c10::Stream::id(); `native` is what the
   * device's guard returns from getStreamNativeHandle, or null. Without it, order is kept by
   * waiting on the host. */
  int (*stream_from_torch)(int device, int64_t stream_id, void* native, hcd_stream* out);
  /* Mandatory. Blocks until all work queued on the stream so far is done and visible to the host.
   */
  int (*stream_sync)(int device, hcd_stream stream);

  /* Mandatory. Copies `bytes` in stream order. With HCD_CAP_ASYNC_COPY they may return early; then
   * the host memory is borrowed until the stream passed this point. */
  int (*copy_d2h)(int device, void* host, hcd_ref from, size_t bytes, hcd_stream stream);
  int (*copy_h2d)(int device, hcd_ref to, const void* host, size_t bytes, hcd_stream stream);

  /* Optional. Makes device memory readable and writable by the host at *host until `unmap(*host)`.
   * The caller has ordered himself after the device's work; the device must not use the range
   * meanwhile unless HCD_CAP_COHERENT_MAP. Cheap enough to be called for each operation. */
  int (*map)(int device, hcd_ref ref, size_t bytes, void** host);
  int (*unmap)(int device, void* host);

  /* Optional. Queues `fn(arg)` on the stream: it runs on a thread of the plugin's choice after all
   * earlier work of the stream; later work waits until it returned. `fn` may block, and must not
   * call this table. */
  int (*host_func)(int device, hcd_stream stream, void (*fn)(void*), void* arg);

  /* Optional, both or none. Queues a wait until `*word >= value` (a 64-bit host word that any
   * thread or process may store to), and a store of `value` to `*word` when the stream gets there.
   * The word outlives the queued work. Who sees the store sees what the stream did before it;
   * behind the wait the stream sees what was written before that store. Used where `host_func` is
   * null: the stream stores to one word and waits for another, and a thread of hccl-like runs the
   * function in between. Not called where there is `host_func`, which needs no thread that looks at
   * words. */
  int (*stream_wait_value)(int device, hcd_stream stream, const volatile uint64_t* word,
                           uint64_t value);
  int (*stream_write_value)(int device, hcd_stream stream, volatile uint64_t* word, uint64_t value);

  /* Optional, all three or none. Lets another process of this host map the allocation that holds
   * `ref`: `export` fills a handle and says at which offset of the mapping `ref` lies; `open` maps
   * it for the host at *host (writable), and `close` ends that. An exported allocation may be
   * freed; an open mapping stays valid memory until closed. */
  int (*ipc_export)(int device, hcd_ref ref, size_t bytes, hcd_ipc_handle* handle,
                    uint64_t* offset);
  int (*ipc_open)(int device, const hcd_ipc_handle* handle, void** host, size_t* bytes);
  int (*ipc_close)(int device, void* host);

  /* Optional, both or none, and only beside the three above. Maps what another process exported for
   * this device: *base is then memory of the device to torch's operators and, in a hcd_ref, to the
   * copies and `map` of this table, until `peer_close(*base)`. Whoever closes has waited for all
   * work that uses the mapping. */
  int (*peer_open)(int device, const hcd_ipc_handle* handle, void** base, size_t* bytes);
  int (*peer_close)(int device, void* base);

  /* From here on: since 1.2. */

  /* Optional, both or none. A stream that is the caller's until he destroys it. `like` is any
   * stream of the device, from which the plugin takes what it cannot know by itself (a context,
   * say), or 0; with 0 it may refuse. A positive `priority` asks for a stream that is served before
   * others; it is a wish. What is queued on the stream is done whatever other streams wait for: a
   * large call's copies are, while the caller's stream waits for their end. A stream is destroyed
   * by nobody who still waits for it; work that is queued on it is done all the same. */
  int (*stream_create)(int device, hcd_stream like, int priority, hcd_stream* out);
  int (*stream_destroy)(int device, hcd_stream stream);

  /* Optional, all five or none. `event_record` makes an event of what is queued on the stream so
   * far: one point, reached once, never recorded again. `stream_wait_event` lets later work of a
   * stream of the same device wait for it, without blocking. `event_query` says HCD_OK or
   * HCD_NOT_READY, and HCD_OK means that the results are visible to the host. `event_sync` blocks
   * until then. `event_destroy` is legal at any time: who waits already, waits on. */
  int (*event_record)(int device, hcd_stream stream, hcd_event* out);
  int (*stream_wait_event)(int device, hcd_stream stream, hcd_event event);
  int (*event_query)(int device, hcd_event event);
  int (*event_sync)(int device, hcd_event event);
  int (*event_destroy)(int device, hcd_event event);

  /* Optional. Copies within the device, in stream order, as the other copies. The ranges do not
   * overlap. */
  int (*copy_d2d)(int device, hcd_ref to, hcd_ref from, size_t bytes, hcd_stream stream);

  /* Optional. inout[i] = inout[i] op in[i] for `count` elements, in stream order, as the copies.
   * Aligned as the elements are. The ranges are apart. What is asked for a type and op that it
   * cannot do gives HCD_UNSUPPORTED. */
  int (*reduce)(int device, hcd_ref inout, hcd_ref in, uint64_t count, hcd_type type, hcd_op op,
                hcd_stream stream);

  /* Optional, both or none. Device memory beside torch's allocator: *base, with offset 0, is its
   * beginning. Nothing may be queued that uses what is freed. */
  int (*mem_alloc)(int device, size_t bytes, void** base);
  int (*mem_free)(int device, void* base);

  /* Optional, both or none. Host memory, aligned to 64 bytes at least, that copies of this device
   * reach fastest and really without blocking. Nothing may be queued that uses what is freed. */
  int (*host_alloc)(int device, size_t bytes, void** host);
  int (*host_free)(int device, void* host);

  /* Optional, both or none. Gives host memory that exists already, shared with other processes
   * perhaps, the same properties until it is unregistered, by the same address. `host` and `bytes`
   * are multiples of the page size. Ranges that are registered at the same time do not overlap.
   * Unregistering what is not registered is HCD_INVALID. */
  int (*host_register)(int device, void* host, size_t bytes);
  int (*host_unregister)(int device, void* host);

  /* Optional: null, or the first of a chain that lives as long as the library. */
  const hcd_extension* extensions;

  /* From here on: since 1.3. */

  /* Optional, and only beside ipc_export. Whether the allocation that this process exported as
   * `handle` still exists: HCD_OK, or HCD_INVALID once it was freed. Memory that torch's allocator
   * keeps to hand it out again exists. Peers close their mapping of what was freed; where this
   * entry is null they close it after 256 calls without use. */
  int (*ipc_lives)(int device, const hcd_ipc_handle* handle);
} hcd_api;

/* The one exported symbol. Returns null if the plugin does not speak interface version `major`. */
typedef const hcd_api* (*hcd_get_api_fn)(int major, int minor);
#define HCD_GET_API_SYMBOL "hcd_get_api"

#ifdef __cplusplus
}
#endif

#endif /* HCCL_LIKE_DEVICE_PLUGIN_H_ */
