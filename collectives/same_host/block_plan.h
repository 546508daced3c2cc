#pragma once
// One large call of one host as a value: its blocks, the bytes that each pair of ranks moves, and
// the addresses of all memory that this rank reads and writes.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/board/board_call.h"
#include "collectives/same_host/roles.h"
#include "collectives/same_host/shape.h"
#include "collectives/same_host/staging_buffer.h"
#include "transport/message/pieces.h"

namespace hccl_like {

// A staging buffer consists of as many slots of one block each as fit.
struct Slots {
  size_t bytes = 1;  // of one slot
  uint32_t count = 1;
  size_t offset(uint32_t first, uint32_t block) const { return (first + block) % count * bytes; }
};

struct BlockPlan {
  // Another rank's side. This rank's own entry has only the sizes.
  struct Peer {
    const StagingBuffer* staging = nullptr;
    uint64_t base = 0;
    uint32_t first_slot = 0;
    size_t gives = 0, takes = 0;  // bytes, to and from this rank
    // Its memory, if it can be mapped.
    Pieces input;
    std::byte* output = nullptr;
  };

  // Measures the call from local knowledge only. Keeps the capacity of `peers`.
  void measure(const BoardCall& call);
  // The largest chunk of any rank determines the number of blocks.
  void agree_about_blocks(size_t largest);
  // Ranks whose input, and whose output, all ranks can map.
  void settle(RankSet inputs, RankSet outputs);

  // Chunk of this rank's input for `to`, and of its output from `from`.
  size_t input_chunk(int to) const;
  size_t output_chunk(int from) const;
  // Offsets of the bytes in a rank's input and output that it exchanges with this one. All ranks
  // must know all sizes.
  ChunkSizes sizes_of(int rank) const;
  // Publishes the sizes that only each pair of ranks knows.
  void tell_sizes(StagingBuffer& own) const;

  // Whether other ranks access this rank's memory.
  bool shares_own() const { return roles.input_mapped(rank) || roles.output_mapped(rank); }
  const Peer& peer(int of) const { return peers[static_cast<size_t>(of)]; }
  // Range of a block that `from` gives this rank, and that `to` takes from it.
  Span given(int from, Span block) const { return within(block, peer(from).gives); }
  Span taken(int to, Span block) const { return within(block, peer(to).takes); }
  // This rank's slot of a block, and another rank's, which is read-only.
  std::byte* slot(uint32_t block) const;
  std::byte* slot_of(int other, uint32_t block) const;

  const BoardCall* call = nullptr;
  Collective collective = Collective::kBarrier;
  int rank = 0, ranks = 1;
  Shape shape;
  Roles roles;
  uint64_t most_blocks = 0;  // over all shapes that were considered
  bool past_caches = false;  // copies bypass the caches
  bool alternates = false;   // between two staging buffers
  Slots slots;
  StagingBuffer* staging = nullptr;  // this rank's
  uint32_t first_slot = 0;
  std::vector<Peer> peers;
};

// Whether it is cheaper if every rank sums all of an all-reduce, which saves one synchronization.
// `shares`: whether this rank lets others map its memory.
bool prefers_to_sum_all(const BlockPlan& plan, bool shares);

}  // namespace hccl_like
