#include "collectives/same_host/block_plan.h"

#include <unistd.h>

#include <algorithm>

#include "core/memory/copy.h"

namespace hccl_like {
namespace {

// The payload as defined by Shape, as far as this rank knows it.
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

// Whether two ranks exchange equal amounts.
bool exchange(const BoardCall& call) {
  const Semantics meaning = semantics(call.call->collective);
  return call.board->size() == 2 && !meaning.from_root && !meaning.to_root;
}

// Bytes of a block in each staging buffer. With more ranks than cores, larger blocks need fewer
// turns. Exchanged blocks are still in the L2 cache when they are read.
size_t room_of(const BoardCall& call) {
  constexpr size_t kExchanged = 128 << 10;
  if (exchange(call)) return kExchanged;
  switch (call.call->collective) {
    case Collective::kBroadcast:
    case Collective::kAllGather:
    case Collective::kGather:
      return StagingBuffer::kSlotBytes / 2;
    default:
      return StagingBuffer::kSlotBytes;
  }
}

// Writing bytes that a peer's cache still holds takes two to four times as long as writing uncached
// bytes. So calls cycle through the staging buffer, but through so little of it that it stays in
// the L2 cache: with 8 slots, calls of 16 KiB to 1 MiB take 5 to 40 % less time than with 32.
constexpr size_t kMostSlots = 8;
// Before reusing a staging buffer, a rank reads every peer's counter, which costs as much as
// copying some KiB. Calls up to this size alternate between two buffers instead: the other one is
// free when this one is retired. Larger calls gain more from reusing a cached buffer.
constexpr size_t kMostAlternating = 16 << 10;

// Whether all ranks together touch more than the last-level cache holds, staging buffers included.
// A broadcast usually has one buffer per rank.
bool goes_past_caches(const BoardCall& call) {
  const size_t in = call.input->total_bytes(), out = call.output->total_bytes();
  const bool one_buffer =
      call.call->collective == Collective::kBroadcast &&
      call.input->contiguous(0, 0, in).data == call.output->contiguous(0, 0, out).data;
  const size_t touched = static_cast<size_t>(call.board->size()) * (one_buffer ? in : in + out);
  return call.call->shared_output ? touched > last_cache_bytes() : touched >= last_cache_bytes();
}

// Step size where no slot limits it; larger for much memory if cores are free for helpers.
size_t step_bytes(size_t share, size_t ranks) {
  static const auto kCores = static_cast<size_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  return share >= 32 << 20 && kCores >= 2 * ranks ? 16 << 20 : 256 << 10;
}

// Offset of a chunk in a layout of adjacent chunks.
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
  // With kPairs, no rank knows how small the call is.
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
  // Bytes that a rank reads in the time of one synchronization: on its own core, or, for each peer
  // in each turn, on a shared core.
  constexpr size_t kReadsInHandshake = 8 << 10, kReadsInTurn = 5632;
  if (plan.collective != Collective::kAllReduce) return false;
  // With unmapped memory, two ranks read no more of each other this way; several ranks do.
  if (plan.ranks == 2) return !shares;
  const auto ranks = static_cast<size_t>(plan.ranks);
  const auto cores = static_cast<size_t>(plan.call->resources->cores);
  const bool crowded = cores > 0 && ranks > cores;
  const size_t more = (ranks - 1) * (ranks - 2) * plan.shape.payload / ranks;
  const size_t least = crowded ? kReadsInTurn * ranks * ranks / cores : kReadsInHandshake;
  return more <= least / (shares ? 2 : 1);
}

}  // namespace hccl_like
