#include "collectives/same_host/block_plan.h"

#include <unistd.h>

#include <algorithm>

#include "core/memory/copy.h"

namespace hccl_like {
namespace {

// The bytes that Shape calls the payload, as far as this rank knows them.
size_t payload_of(const BoardCall& call) {
  const size_t in = call.input->total_bytes(), out = call.output->total_bytes();
  if (call.plan->chunks != Chunks::kEqual)
    return std::max(call.input->largest_chunk(), call.output->largest_chunk());
  const Semantics meaning = semantics(call.call->collective);
  const auto own = static_cast<size_t>(call.board->rank());
  if (meaning.output == Chunking::kOwn) return call.output->bytes(own);
  if (meaning.output == Chunking::kPerRank) return call.input->bytes(own);
  return meaning.to_root ? in : std::max(in, out);
}

// Whether two ranks give each other as much as they take.
bool exchange(const BoardCall& call) {
  const Semantics meaning = semantics(call.call->collective);
  return call.board->size() == 2 && !meaning.from_root && !meaning.to_root;
}

// What a block takes of each staging buffer. More ranks than cores take turns: the more one of them
// finds, the fewer turns they need. One writer and one reader work side by side and stay ahead of
// nobody: their slots should leave room in one core's cache. Blocks of two ranks that exchange are
// still in the second-level cache when they are read.
size_t room_of(const BoardCall& call) {
  constexpr size_t kExchanged = 128 << 10;
  if (exchange(call)) return kExchanged;
  switch (call.call->collective) {
    case Collective::kBroadcast:
      return call.board->size() == 2 ? StagingBuffer::kSlotBytes / 8
                                     : StagingBuffer::kSlotBytes / 2;
    case Collective::kAllGather:
    case Collective::kGather:
      return StagingBuffer::kSlotBytes / 2;
    default:
      return StagingBuffer::kSlotBytes;
  }
}

// A peer's caches still hold the bytes that it has read, and writing those again takes two to four
// times as long as writing bytes that have left the caches. So calls go round the whole staging
// buffer, but for the smallest, which the first cache holds.
constexpr size_t kMostSlots = 128;
// Whether nobody reads the last staging buffer any more the other ranks tell in lines of theirs,
// and waiting for those takes as long as copying some KiB. Calls that put no more than this do not
// ask and use two buffers in turns, of which the other one is found to be free when this one is
// retired; for larger ones the way back to the same buffer, which is in a cache, is worth more.
constexpr size_t kMostAlternating = 16 << 10;

// Whether all that the ranks touch is more than the last cache holds. A broadcast has one buffer a
// rank, most often; what passes through staging buffers takes room for them, too.
bool goes_past_caches(const BoardCall& call) {
  const size_t in = call.input->total_bytes(), out = call.output->total_bytes();
  const bool one_buffer =
      call.call->collective == Collective::kBroadcast &&
      call.input->contiguous(0, 0, in).data == call.output->contiguous(0, 0, out).data;
  const size_t touched = static_cast<size_t>(call.board->size()) * (one_buffer ? in : in + out);
  return call.call->shared_output ? touched > last_cache_bytes() : touched >= last_cache_bytes();
}

// What a rank moves in one step where no slot limits it. Of much memory more, if there are cores
// for helpers.
size_t step_bytes(size_t share, size_t ranks) {
  static const auto kCores = static_cast<size_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  return share >= 32 << 20 && kCores >= 2 * ranks ? 16 << 20 : 256 << 10;
}

// Where chunk `chunk` begins, if the chunks of a layout lie side by side.
uint64_t begin_of(const Layout& layout, int chunk) {
  uint64_t begin = 0;
  for (int i = 0; i < chunk; ++i) begin += layout.bytes(static_cast<size_t>(i));
  return begin;
}

}  // namespace

void BlockPlan::measure(const BoardCall& of) {
  call = &of;
  collective = of.call->collective;
  rank = of.board->rank();
  ranks = of.board->size();
  const size_t payload = payload_of(of);
  slots.bytes = room_of(of);
  // Of pairs nobody knows how little it is.
  if (of.plan->chunks != Chunks::kPairs)
    slots.bytes = std::min(slots.bytes, Shape::room(collective, ranks, payload));
  shape = Shape::of(collective, ranks, payload, slots.bytes);
  most_blocks = shape.blocks;
  alternates = slots.bytes * shape.blocks <= kMostAlternating;
  slots.count =
      static_cast<uint32_t>(std::min(kMostSlots, StagingBuffer::kPayloadBytes / slots.bytes));
  past_caches = goes_past_caches(of);
  peers.assign(static_cast<size_t>(ranks), {});
  const bool equal = of.plan->chunks == Chunks::kEqual;
  for (int other = 0; other < ranks; ++other) {
    Peer& peer = peers[static_cast<size_t>(other)];
    peer.gives = equal ? payload : of.output->bytes(output_chunk(other));
    peer.takes = equal ? payload : of.input->bytes(input_chunk(other));
  }
}

void BlockPlan::agree_about_blocks(size_t largest) {
  if (call->plan->chunks != Chunks::kPairs) return;
  shape = Shape::of(collective, ranks, std::max(shape.payload, largest), slots.bytes);
  most_blocks = std::max<uint64_t>(most_blocks, shape.blocks);
}

void BlockPlan::settle(RankSet inputs, RankSet outputs) {
  roles = Roles(collective, rank, ranks, call->call->root, inputs, outputs);
  if (roles.staged()) return;
  const auto all = static_cast<size_t>(ranks);
  const size_t share = shape.payload / (shape.kind == Shape::Kind::kCut ? all : 1);
  shape = Shape::of(collective, ranks, shape.payload,
                    step_bytes(share, all) * (shape.kind == Shape::Kind::kWhole ? 1 : all));
}

size_t BlockPlan::input_chunk(int to) const {
  return static_cast<size_t>(hccl_like::input_chunk(collective, rank, to));
}

size_t BlockPlan::output_chunk(int from) const {
  return static_cast<size_t>(hccl_like::output_chunk(collective, rank, from));
}

ChunkSizes BlockPlan::sizes_of(int other) const {
  ChunkSizes sizes{.gives = peer(other).gives, .takes = peer(other).takes};
  const bool equal = call->plan->chunks == Chunks::kEqual;
  const auto begin = [&](const Layout& layout) {
    return equal ? static_cast<uint64_t>(rank) * shape.payload : begin_of(layout, rank);
  };
  const Semantics meaning = semantics(collective);
  if (meaning.input == Chunking::kPerRank) sizes.input_at = begin(*call->input);
  if (meaning.output == Chunking::kPerRank) sizes.output_at = begin(*call->output);
  return sizes;
}

void BlockPlan::tell_sizes(StagingBuffer& own) const {
  const Semantics meaning = semantics(collective);
  ChunkSizes sizes;
  for (int other = 0; other < ranks; ++other) {
    sizes.gives = peer(other).takes;
    sizes.takes = peer(other).gives;
    own.sizes[static_cast<size_t>(other)] = sizes;
    // What follows belongs to the next rank.
    const auto chunk = static_cast<size_t>(other);
    if (meaning.input == Chunking::kPerRank) sizes.input_at += call->input->bytes(chunk);
    if (meaning.output == Chunking::kPerRank) sizes.output_at += call->output->bytes(chunk);
  }
}

std::byte* BlockPlan::slot(uint32_t block) const {
  return staging->payload.data() + slots.offset(first_slot, block);
}

std::byte* BlockPlan::slot_of(int other, uint32_t block) const {
  const Peer& owner = peer(other);
  return const_cast<std::byte*>(owner.staging->payload.data()) +
         slots.offset(owner.first_slot, block);
}

bool prefers_to_sum_all(const BlockPlan& plan, bool shares) {
  // What a rank of several reads in the time that a meeting takes: on a core of its own, and, for
  // each other in each turn, where they take turns at one.
  constexpr size_t kReadsInMeeting = 8 << 10, kReadsInTurn = 5632;
  if (plan.collective != Collective::kAllReduce) return false;
  // Two read no more of each other for it, if their memory is not mapped; several do.
  if (plan.ranks == 2) return !shares;
  const auto ranks = static_cast<size_t>(plan.ranks);
  const auto cores = static_cast<size_t>(plan.call->resources->cores);
  const bool crowded = cores > 0 && ranks > cores;
  const size_t more = (ranks - 1) * (ranks - 2) * plan.shape.payload / ranks;
  const size_t least = crowded ? kReadsInTurn * ranks * ranks / cores : kReadsInMeeting;
  return more <= least / (shares ? 2 : 1);
}

}  // namespace hccl_like
