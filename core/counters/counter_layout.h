#pragma once
// The bytes of a counter file. python/hccl_like/top/_file.py reads the same layout.
//
// Every writer is in one process, on any thread. Readers are other processes of the same user,
// which map the file read-only. All counters are relaxed: a reader may see one counter of a call
// before another.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hccl_like::counter_layout {

inline constexpr std::array<char, 8> kMagic{'H', 'C', 'C', 'L', 'c', 'n', 't', '\0'};
// Increase it with every change of the structures below.
inline constexpr uint32_t kVersion = 3;
inline constexpr size_t kKinds = 16;    // at most this many collectives
inline constexpr size_t kGroups = 128;  // open groups at a time; others are not counted
inline constexpr size_t kPeers = 256;   // connections; others are not counted
inline constexpr size_t kNameBytes = 64;

using Counter = std::atomic<uint64_t>;
static_assert(Counter::is_always_lock_free && sizeof(Counter) == sizeof(uint64_t));

// Calls of one collective in one group.
struct Calls {
  Counter over;         // successful calls
  Counter failed;       // calls that ended with an error
  Counter bytes;        // of the successful calls, the larger of input and output
  Counter nanoseconds;  // from the call to its end, of the successful calls
};

struct alignas(64) Group {
  Counter serial;  // 0: the slot is free; else unique in this file. Written last.
  uint64_t id;     // same on all ranks of the group
  int32_t rank;
  int32_t size;
  int32_t global_rank;
  uint32_t unused;
  std::array<char, kNameBytes> name;  // ends with a zero
  Counter latest;                     // the latest call made: number << 8 | kind + 1; 0: none
  Counter collective;                 // number of the latest collective made
  std::atomic<int64_t> peer;   // of the latest call, if it is a message: rank in the group; else -1
  Counter launched, finished;  // calls that did not end at once; the difference runs
  Counter progress_ns;  // CLOCK_MONOTONIC: when the first of the running calls began, or one ended
  Counter refused;      // calls after a failure of the group
  std::array<Calls, kKinds> calls;
};

// Messages between this process and another, over their connection, and waits for it. Calls on the
// board or directly between the memory of two ranks are no messages.
struct alignas(64) Peer {
  Counter number;     // rank in the largest group + 1; 0: the slot is free
  Counter transport;  // its name, at most 8 letters, the first in the lowest byte; 0: no connection
  Counter sent, sent_bytes, received, received_bytes;
  std::atomic<uint32_t> reconnected;  // connections that took the place of broken ones
  std::atomic<uint32_t> rails_down;   // now: broken, or moved to another network
  Counter waited;  // nanoseconds in which calls could not go on, because they waited for it
};

struct alignas(64) Header {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t header_bytes, group_bytes, groups, kinds, name_bytes;
  uint32_t pid;                     // in the process's own namespace
  std::atomic<int32_t> rank, size;  // in the largest group; -1 before there is one
  uint32_t peers, peer_bytes;
  uint32_t unused;
  uint64_t started_ns;  // CLOCK_REALTIME
  Counter job;          // id of the largest group; 0 before there is one
  Counter uncounted;    // groups and connections for which there was no slot
  std::array<std::array<char, 24>, kKinds> names;  // of the collectives
};

struct File {
  Header header;
  std::array<Group, kGroups> groups;
  std::array<Peer, kPeers> peers;
};

}  // namespace hccl_like::counter_layout
