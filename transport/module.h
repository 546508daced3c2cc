/* The transport module interface: lets a third-party library carry hccl-like's bytes.
 *
 * A module is a shared library that exports one function, `hct_get_api`. It returns a table of
 * function pointers:
 *
 *   - The table begins with its own size. New entries are appended, never inserted, and no entry
 * ever changes. An old module therefore works with a new hccl-like and the reverse.
 *   - An entry that is not marked optional is mandatory.
 *   - A module moves bytes. hccl-like adds messages, tags, matching, flow control between messages
 * and authentication of the peer on top of the module's stream.
 *   - One thread at a time calls the functions of one end and of its wires, not always the same
 * thread. Two threads may use two ends (tests make two in one process) at once.
 *   - No function throws. No function except `open` and `close` blocks. No function except `open`
 * and `connect` should allocate.
 *   - An int result is 0 for success and negative for failure, unless its entry says otherwise.
 * After a failure, `last_error` gives a sentence for people.
 *
 * docs/transport-guide.md walks through an example. This header is C99 and C++, and includes
 * nothing of hccl-like. */
#ifndef HCCL_LIKE_TRANSPORT_MODULE_H_
#define HCCL_LIKE_TRANSPORT_MODULE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The interface's version. hct_get_api returns null for a different major version. */
#define HCT_MAJOR 1
#define HCT_MINOR 2

/* Maximum bytes of an `address` and maximum length of a name. */
#define HCT_MAX_ADDRESS 2048
#define HCT_MAX_NAME 32

/* This process's end of the transport, and one connection to a peer process. The module defines
 * both. */
typedef struct hct_end hct_end;
typedef struct hct_wire hct_wire;

typedef struct hct_region {
  const void* data;
  size_t bytes;
} hct_region;

/* Since minor version 2. Memory that one end lets the other read, for messages without a copy: at
 * most HCT_SLOTS ranges at a time for each wire and direction, and HCT_READS reads. */
#define HCT_SLOTS 8
#define HCT_READS 16
/* The address of such memory. Only the module interprets the words. */
typedef struct hct_place {
  uint64_t words[16];
} hct_place;
enum { HCT_READ_UNDER_WAY = 0, HCT_READ_DONE = 1, HCT_READ_FAILED = 2 };

/* The functions of hccl-like for a module, valid from `open` to `close`. Call all but `ring`
 * only inside the module's functions. */
typedef struct hct_host {
  size_t size; /* sizeof(hct_host) in hccl-like's build */
  void* context;
  /* Wakes the process when `fd` has one of `events` (EPOLLIN, EPOLLOUT, ...; level-triggered),
   * and then calls `ready(arg, events)`. A second call for a watched fd replaces events,
   * function and argument. With 0 events only errors and hang-up (EPOLLERR, EPOLLHUP) wake.
   * `ready` may watch and forget descriptors. */
  int (*watch)(void* context, int fd, uint32_t events, void (*ready)(void* arg, uint32_t events),
               void* arg);
  /* Must be called before fd is closed. */
  void (*forget)(void* context, int fd);
  /* Wakes the process if it sleeps; for modules with their own threads. Any thread. */
  void (*ring)(void* context);
  /* Between nap(context, 1) and nap(context, 0) the module cannot wake the process: each sleep
   * lasts only a fraction of a millisecond, and hccl-like polls the wires in between. Calls
   * nest; pair them. */
  void (*nap)(void* context, int begin);
} hct_host;

/* The process at the other end. */
typedef struct hct_peer {
  size_t size;          /* sizeof(hct_peer) in hccl-like's build */
  const char* id;       /* 32 hexadecimal digits: random, different for every end ever opened */
  const char* hostname; /* for people */
  int same_host;        /* nonzero: the two processes share a kernel, and a network name space */
  const void* address;  /* from the peer's `address` */
  size_t address_bytes;
} hct_peer;

/* Of any two ends exactly one is the connector. A module that needs no such distinction ignores
 * it. */
enum { HCT_CONNECTOR = 0, HCT_ACCEPTOR = 1 };

typedef struct hct_api {
  size_t size;      /* sizeof(hct_api) in the module's build */
  const char* name; /* in HCCL_LIKE_TRANSPORTS: small letters, digits and _ */

  /* A sentence for the calling thread's last failure; valid until the thread's next call. */
  const char* (*last_error)(void);

  /* Opens this process's end. Peers see `self_id` as hct_peer.id. May take some milliseconds. */
  int (*open)(const hct_host* host, const char* self_id, hct_end** end);
  /* Called after the last wire is closed. */
  void (*close)(hct_end* end);
  /* The address for other ends to reach this one: at most HCT_MAX_ADDRESS bytes, constant while
   * the end is open. */
  hct_region (*address)(hct_end* end);
  /* Whether the peer may be reachable. 0: no; else yes. Called only for peers with an address of
   * this module. */
  int (*can_reach)(hct_end* end, const hct_peer* peer);
  /* Makes a wire. Both ends call it at about the same time. `peer` is not valid after the call.
   * The wire may still be connecting: then it takes no bytes yet; if the connection fails,
   * `failure` says why. May be called again for a peer after the earlier wire to it was closed;
   * no byte of the earlier wire may appear in the new one. */
  int (*connect)(hct_end* end, const hct_peer* peer, int side, hct_wire** wire);

  /* Closes a wire. Written bytes still arrive if the peer lives; the peer's wire fails after the
   * last byte. */
  void (*close_wire)(hct_wire* wire);
  /* Takes as many of the regions' bytes as fit now, in order, and returns their number; 0: "not
   * now". The caller may reuse the memory on return. Bytes taken become visible to the peer
   * without a further call, as long as this process is driven. At least 16 KiB must fit while
   * the peer reads nothing, and the capacity must be finite. */
  size_t (*write)(hct_wire* wire, const hct_region* regions, size_t count);
  /* A contiguous view of arrived bytes, 0 bytes if there are none. At least `want` bytes long if
   * so many have arrived (want <= 4096). Valid until the next peek, release or read. Longer
   * views are better: reductions read directly from the view. */
  hct_region (*peek)(hct_wire* wire, size_t want);
  /* Drops the first `bytes` of the last view; may be called several times per view. */
  void (*release)(hct_wire* wire, size_t bytes);
  /* Copies arrived bytes directly to `into`, in order; returns their number, 0 if there are
   * none. */
  size_t (*read)(hct_wire* wire, void* into, size_t bytes);
  /* Null while healthy. After the peer is lost, or was never reached: the reason, in a few
   * words. Stays null until every arrived byte was read, or fewer bytes are left than the last
   * peek wanted. Once set, it never changes. */
  const char* (*failure)(hct_wire* wire);
  /* Advances written bytes that still wait in this process; nonzero when none is left. Until
   * then hccl-like calls it again, even when no message is in flight. */
  int (*flush)(hct_wire* wire);
  /* Prepares a sleep: ensures that the process wakes (through `watch`, `ring` or `nap`) when
   * bytes arrive or, if `for_space`, when write may take bytes again. Returns 0 to refuse the
   * sleep if either holds already: the last peek would now show the bytes that it wanted, or
   * write may take bytes. Else nonzero. end_sleep follows in both cases. */
  int (*prepare_sleep)(hct_wire* wire, int for_space);
  void (*end_sleep)(hct_wire* wire);

  /* Optional. The route to the peer, for logs ("over /run/x.sock"); valid until the wire is
   * closed. */
  const char* (*route)(hct_wire* wire);

  /* Since minor version 1; optional. As prepare_sleep, but the host leaves arrived bytes unread.
   * Unread bytes neither refuse the sleep nor end it; new bytes end it at most once. Returns 0
   * if `for_space` and write may take bytes, or if the peer is lost, even before its last bytes
   * were read. Without this entry the host polls such a wire every fraction of a millisecond.
   * end_sleep follows. */
  int (*prepare_sleep_unread)(hct_wire* wire, int for_space);

  /* Since minor version 2; optional, but all of show to abandon_reads or none. The receiver of a
   * long message then reads the sender's memory, and the stream carries only its place. Both ends
   * of a wire must have these entries or lack them: can_reach refuses other peers. A failed `show`
   * or read is no error: the message goes through the stream. Only a read that fails in the middle
   * of a sum ends the wire.
   *
   * Registers the memory and lets the peer read it until `hide`, as `slot`, which is free: 0 to
   * HCT_SLOTS - 1. Fills in `place`, which hccl-like sends to the peer. */
  int (*show)(hct_wire* wire, uint32_t slot, const void* data, size_t bytes, hct_place* place);
  /* The peer has no read in flight, unless it is stopped or dead. Later reads fail, or read what
   * then lies there; they never crash a process. */
  void (*hide)(hct_wire* wire, uint32_t slot);
  /* Starts to read the peer's memory, `offset` bytes behind the beginning of `place`, into `into`.
   * `read` is a number that is free: 0 to HCT_READS - 1. 0: started; 1: not now, try again;
   * negative: this wire cannot. `place` comes from the peer and may be wrong. */
  int (*start_read)(hct_wire* wire, uint32_t read, const hct_place* place, size_t offset,
                    void* into, size_t bytes);
  /* HCT_READ_... After DONE or FAILED nothing more is written to the memory, and hccl-like uses
   * the number again. */
  int (*read_state)(hct_wire* wire, uint32_t read);
  /* Advances reads, and serves the peer's. Called often while either may be in flight. */
  void (*progress_reads)(hct_wire* wire);
  /* Notes of eight bytes, in order, beside the stream: they arrive also while the peer reads
   * nothing of it, and they wake it. At most 4 * HCT_SLOTS are in flight, so `tell` always takes
   * one; `flush` advances it too. After the loss of the peer it is dropped. A note that the peer
   * told before it let go of memory is heard at the latest when a read of that memory ends. */
  void (*tell)(hct_wire* wire, uint64_t note);
  /* 1: `note` is filled in; 0: there is none. Null for `note`: only whether there is one. */
  int (*hear)(hct_wire* wire, uint64_t* note);
  /* On return no read in flight writes to memory any more. The wire fails with this reason. */
  void (*abandon_reads)(hct_wire* wire, const char* why);
} hct_api;

/* The one exported symbol. Returns null if the module does not support interface version
 * `major`. */
typedef const hct_api* (*hct_get_api_fn)(int major, int minor);
#define HCT_GET_API_SYMBOL "hct_get_api"

#ifdef __cplusplus
}
#endif

#endif /* HCCL_LIKE_TRANSPORT_MODULE_H_ */
