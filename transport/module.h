/* The transport module interface: what a third party fills in so that hccl-like can carry bytes his
 * way.
 *
 * A module is a shared library that exports one function, `hct_get_api`. It returns a table of
 * function pointers:
 *
 *   - The table begins with its own size. New entries are appended, never inserted, and no entry
 * ever changes. So an old module works with a new hccl-like and the reverse.
 *   - An entry that is not marked optional must be there.
 *   - A module moves bytes. Messages, tags, matching, flow control between messages, and who the
 * peer really is, are not its business: hccl-like sees to them on top of the stream that a module
 * gives it.
 *   - All functions of one end, and of its wires, are called by one thread at a time, not always
 * the same one. Two ends (tests make two in one process) may be used by two threads at once.
 *   - No function blocks, `open` and `close` excepted, or throws. None but `open` and `connect`
 * should allocate.
 *   - Where a result is an int, 0 is success and a negative number failure; then `last_error` gives
 * a sentence for people.
 *
 * docs/transport-guide.md walks through an example. This header is C99 and C++, and includes
 * nothing of hccl-like.
 */
#ifndef HCCL_LIKE_TRANSPORT_MODULE_H_
#define HCCL_LIKE_TRANSPORT_MODULE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The interface's version. A different major version is refused by hct_get_api (it returns null).
 */
#define HCT_MAJOR 1
#define HCT_MINOR 1

/* What `address` may publish at most, and the longest name. */
#define HCT_MAX_ADDRESS 2048
#define HCT_MAX_NAME 32

/* This process's end of the transport, and one connection to a peer process: the module's own
 * structures. */
typedef struct hct_end hct_end;
typedef struct hct_wire hct_wire;

typedef struct hct_region {
  const void* data;
  size_t bytes;
} hct_region;

/* What hccl-like does for a module, valid from `open` to `close`. All but `ring` are called inside
 * the module's functions only. */
typedef struct hct_host {
  size_t size; /* sizeof(hct_host) in hccl-like's build */
  void* context;
  /* Wakes the process when `fd` has one of `events` (EPOLLIN, EPOLLOUT, ...; level-triggered), and
   * calls `ready(arg, events)` then. Called again for a watched fd it replaces events, function and
   * argument; 0 events leave only errors and the end (EPOLLERR, EPOLLHUP). `ready` may watch and
   * forget descriptors. */
  int (*watch)(void* context, int fd, uint32_t events, void (*ready)(void* arg, uint32_t events),
               void* arg);
  /* Before fd is closed. */
  void (*forget)(void* context, int fd);
  /* Wakes the process if it sleeps; for modules with threads of their own. Any thread. */
  void (*ring)(void* context);
  /* Nothing can wake the process for this module: from nap(context, 1) to nap(context, 0), and as
   * often for each, a sleep lasts a fraction of a millisecond only, and the wires are looked at
   * between. */
  void (*nap)(void* context, int begin);
} hct_host;

/* The process at the other end. */
typedef struct hct_peer {
  size_t size;    /* sizeof(hct_peer) in hccl-like's build */
  const char* id; /* 32 hexadecimal digits: random, different for every end that was ever opened */
  const char* hostname; /* for people */
  int same_host;        /* nonzero: the two processes share a kernel, and a network name space */
  const void* address;  /* what its `address` gave */
  size_t address_bytes;
} hct_peer;

/* Of any two ends exactly one is told to connect. A module that needs no such distinction ignores
 * it. */
enum { HCT_CONNECTOR = 0, HCT_ACCEPTOR = 1 };

typedef struct hct_api {
  size_t size;      /* sizeof(hct_api) in the module's build */
  const char* name; /* as users write it in HCCL_LIKE_TRANSPORTS: small letters, digits and _ */

  /* A sentence for the last failure on the calling thread; valid until the thread's next call. */
  const char* (*last_error)(void);

  /* Opens this process's end. `self_id` is what peers will see as hct_peer.id. May take some
   * milliseconds. */
  int (*open)(const hct_host* host, const char* self_id, hct_end** end);
  /* After the last wire is closed. */
  void (*close)(hct_end* end);
  /* What other ends need to know to reach this one; at most HCT_MAX_ADDRESS bytes, the same as long
   * as the end is open. */
  hct_region (*address)(hct_end* end);
  /* Whether it makes sense to try. 0: no; else yes. Only peers that published an address of this
   * module are asked about. */
  int (*can_reach)(hct_end* end, const hct_peer* peer);
  /* Makes a wire. Both ends are told to, at about the same time, and `peer` is not valid
   * afterwards. The wire may still be on its way to the peer: then it takes no bytes yet; if it
   * cannot get there, its `failure` says why. Called again for a peer after an earlier wire to it
   * was closed; no byte of that may show up in the new one. */
  int (*connect)(hct_end* end, const hct_peer* peer, int side, hct_wire** wire);

  /* Ends a wire. What was written still gets there if the peer lives; the peer's wire fails after
   * the last byte. */
  void (*close_wire)(hct_wire* wire);
  /* Takes as many of the regions' bytes as fit now, in order, and returns how many; 0: "not now".
   * The memory is free again on return. Bytes taken become visible to the peer without a further
   * call, as long as this process is driven. At least 16 KiB must fit while the peer reads nothing,
   * and there must be an end to it. */
  size_t (*write)(hct_wire* wire, const hct_region* regions, size_t count);
  /* A contiguous view of bytes that have arrived, 0 bytes if there are none. At least `want` bytes
   * long if so many have arrived (want <= 4096). Valid until the next peek, release or read. The
   * longer the better: sums read from it. */
  hct_region (*peek)(hct_wire* wire, size_t want);
  /* Drops the first `bytes` of what peek showed; may be called several times on one view. */
  void (*release)(hct_wire* wire, size_t bytes);
  /* Moves arrived bytes straight to `into`, in order; returns how many, 0 if none are there. */
  size_t (*read)(hct_wire* wire, void* into, size_t bytes);
  /* Null while healthy. After the peer has gone, or was never reached: why, in a few words; but
   * only once every byte that had arrived was read, or fewer are left than the last peek wanted.
   * From then on the same. */
  const char* (*failure)(hct_wire* wire);
  /* Pushes on what was written and waits in this process; nonzero when none is left. Until then it
   * is called again, also when no message is under way. */
  int (*flush)(hct_wire* wire);
  /* Going to sleep: makes sure that the process wakes (through `watch`, `ring` or `nap`) when bytes
   * arrive or, if `for_space`, when write may take bytes again. Returns 0 if that is so already
   * (then it does not sleep): the last peek would now show what it wanted. Else nonzero. end_sleep
   * follows in both cases. */
  int (*prepare_sleep)(hct_wire* wire, int for_space);
  void (*end_sleep)(hct_wire* wire);

  /* Optional. How the peer is reached, for logs ("over /run/x.sock"); valid until the wire is
   * closed. */
  const char* (*route)(hct_wire* wire);

  /* Since minor version 1; optional. As prepare_sleep, of a host that leaves what has arrived where
   * it is, as it cannot use it yet: bytes that are there neither refuse the sleep nor end it, and
   * new ones end it once at most. Returns 0 if `for_space` and write may take bytes, or if the peer
   * has gone, also before its last bytes were read. Without this entry the host looks at such a
   * wire every fraction of a millisecond. end_sleep follows. */
  int (*prepare_sleep_unread)(hct_wire* wire, int for_space);
} hct_api;

/* The one exported symbol. Returns null if the module does not speak interface version `major`. */
typedef const hct_api* (*hct_get_api_fn)(int major, int minor);
#define HCT_GET_API_SYMBOL "hct_get_api"

#ifdef __cplusplus
}
#endif

#endif /* HCCL_LIKE_TRANSPORT_MODULE_H_ */
