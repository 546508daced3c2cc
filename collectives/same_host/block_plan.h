#pragma once
// One large call of one host as a value: how its payload is cut into blocks, how many bytes go from
// whom to whom, and where the memory of every rank is that this one reads and writes.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/board/board_call.h"
#include "collectives/same_host/roles.h"
#include "collectives/same_host/shape.h"
#include "collectives/same_host/staging_buffer.h"
#include "transport/message/pieces.h"

namespace hccl_like {

// A staging buffer is cut into slots of a block each, as many as fit.
struct Slots {
  size_t bytes = 1;  // of one
  uint32_t count = 1;
  size_t offset(uint32_t first, uint32_t block) const { return (first + block) % count * bytes; }
};

struct BlockPlan {
  // Another rank's side; the entry of this rank has its sizes only.
  struct Peer {
    const StagingBuffer* staging = nullptr;
    uint64_t base = 0;
    uint32_t first_slot = 0;
    size_t gives = 0, takes = 0;  // bytes, to this rank and from it
    // Where these are, if they can be mapped.
    Pieces input;
    std::byte* output = nullptr;
  };

  // As far as this rank knows the call alone. Keeps the room of `peers`.
  void measure(const BoardCall& call);
  // The largest chunk of any rank decides how many blocks there are.
  void agree_about_blocks(size_t largest);
  // Memory that all can map: of which ranks the input, and the output.
  void settle(RankSet inputs, RankSet outputs);

  // Which chunk of this rank's input goes to `to`, and which of its output comes from `from`.
  size_t input_chunk(int to) const;
  size_t output_chunk(int from) const;
  // Where in a rank's input and output the bytes are that it gives this rank and takes from it, if
  // all ranks know all sizes.
  ChunkSizes sizes_of(int rank) const;
  // The same as this rank tells it to the others, of sizes that only each pair knows.
  void tell_sizes(StagingBuffer& own) const;

  // Whether other ranks use this rank's own memory.
  bool shares_own() const { return roles.input_mapped(rank) || roles.output_mapped(rank); }
  const Peer& peer(int of) const { return peers[static_cast<size_t>(of)]; }
  // What of a block `from` gives this rank, and takes from it.
  Span given(int from, Span block) const { return within(block, peer(from).gives); }
  Span taken(int to, Span block) const { return within(block, peer(to).takes); }
  // This rank's slot of a block; another rank's, for reading only.
  std::byte* slot(uint32_t block) const;
  std::byte* slot_of(int other, uint32_t block) const;

  const BoardCall* call = nullptr;
  Collective collective = Collective::kBarrier;
  int rank = 0, ranks = 1;
  Shape shape;
  Roles roles;
  uint64_t most_blocks = 0;  // of the shapes that were considered
  bool past_caches = false;  // copies go past them
  bool alternates = false;   // between two staging buffers
  Slots slots;
  StagingBuffer* staging = nullptr;  // this rank's
  uint32_t first_slot = 0;
  std::vector<Peer> peers;  // by rank
};

// Whether it is better that every rank sums all of an all-reduce, which saves one meeting.
// `shares`: whether this rank lets others map its memory.
bool prefers_to_sum_all(const BlockPlan& plan, bool shares);

}  // namespace hccl_like
