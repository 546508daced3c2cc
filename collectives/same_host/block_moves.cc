#include "collectives/same_host/block_moves.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "core/memory/copy.h"
#include "device/reduce/parallel.h"

namespace hccl_like {
namespace {

Pieces own_input(const BlockPlan& plan, int to, Span range) {
  Pieces pieces;
  plan.call->input->visit(plan.input_chunk(to), range.begin, range.end,
                          [&](Region region) { pieces.add(region.data, region.bytes); });
  return pieces;
}

Pieces own_output(const BlockPlan& plan, int from, Span range) {
  Pieces pieces;
  plan.call->output->visit(plan.output_chunk(from), range.begin, range.end,
                           [&](Region region) { pieces.add(region.data, region.bytes); });
  return pieces;
}

Pieces mapped_input(const BlockPlan& plan, int from, Span range) {
  Pieces pieces;
  while (range.begin < range.end) {
    const Piece rest = plan.peer(from).input.from(range.begin);
    const size_t bytes = std::min(rest.bytes, range.bytes());
    pieces.add(rest.data, bytes);
    range.begin += bytes;
  }
  return pieces;
}

Pieces staged_input(const BlockPlan& plan, int from, Span range, Span block, uint32_t number) {
  std::byte* const at =
      plan.slot_of(from, number) + plan.shape.place(block, from, plan.rank, range.begin);
  return {at, range.bytes()};
}

template <class Copy>
void copy_pieces(const Pieces& to, const Pieces& from, const Copy& copy) {
  const size_t bytes = to.bytes();
  for (size_t at = 0; at < bytes;) {
    const Piece target = to.from(at), source = from.from(at);
    const size_t now = std::min(target.bytes, source.bytes);
    if (target.data != source.data) copy(target.data, source.data, now);
    at += now;
  }
}

// Divides long copies among idle cores, as reduce_block() does.
template <class Copy>
void move(const BlockPlan& plan, const Pieces& to, const Pieces& from, const Copy& copy) {
  copy_pieces(to, from, [&](std::byte* target, const std::byte* source, size_t bytes) {
    ThreadPool& thread_pool = *plan.call->resources->thread_pool;
    const size_t threads = thread_pool.threads(bytes, static_cast<size_t>(plan.ranks));
    if (threads > 1)
      parallel_copy({thread_pool, threads}, target, source, bytes);
    else if (plan.past_caches)
      copy_past_caches(target, source, bytes);
    else
      copy(target, source, bytes);
  });
}

// Split of a shared path. All ranks move equally much if the root, which is part of every pair,
// moves 1 / `ranks` of each pair's bytes.
size_t root_begins(Span block, int ranks) {
  const auto parts = static_cast<size_t>(ranks);
  return block.begin + block.bytes() / parts * (parts - 1) / 64 * 64;
}

// Part of a block between two ranks that this rank, one of them, moves.
Span own_part(const BlockPlan& plan, Span block, int from, int to) {
  const Path path = plan.roles.path(from, to);
  if (path == Path::kShared) {
    const size_t root = root_begins(block, plan.ranks);
    return plan.rank == plan.call->call->root ? Span{root, block.end} : Span{block.begin, root};
  }
  if (path == Path::kNone) return {};
  return plan.rank == (path == Path::kPushed ? from : to) ? block : Span{};
}

// Results with several destinations are copied while in the L1 cache.
constexpr size_t kHotBytes = 16 << 10;
// Results that bypass the caches are also computed in L1.
constexpr size_t kPastBytes = 8 << 10;
// For a pass by several threads, since some threads are slower.
constexpr size_t kPartsPerThread = 4;
constexpr size_t kGrain = 64;

Span share_of(const BlockPlan& plan, Span block) {
  if (plan.shape.kind != Shape::Kind::kCut) return plan.given(plan.rank, block);
  return plan.roles.sums_all() ? block : plan.shape.share(block, plan.rank);
}

// Finds all ranks' inputs for this rank's share from `offset` on. Returns the number of bytes, at
// most `bytes`, that are contiguous at each rank.
size_t find_sources(const BlockPlan& plan, std::span<const std::byte*> sources,
                    const std::byte* own, size_t offset, size_t bytes, Span block,
                    uint32_t number) {
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const std::byte*& source = sources[static_cast<size_t>(rank)];
    if (rank == plan.rank) {
      source = own;
    } else if (plan.roles.input_mapped(rank)) {
      const Piece piece = plan.peer(rank).input.from(offset);
      source = piece.data;
      bytes = std::min(bytes, piece.bytes);
    } else {
      source = plan.slot_of(rank, number) + plan.shape.place(block, rank, plan.rank, offset);
    }
  }
  return bytes;
}

void spread(const BlockPlan& plan, const std::byte* result, size_t offset, size_t bytes,
            bool goes_past) {
  for (int rank = 0; rank < plan.ranks; ++rank) {
    if (rank == plan.rank || !plan.roles.collects(rank) || !plan.roles.output_mapped(rank))
      continue;
    const BlockPlan::Peer& peer = plan.peer(rank);
    std::byte* const output = peer.output + offset;
    if (goes_past && peer.output != peer.input.from(0).data)
      copy_past_caches(output, result, bytes);
    else
      std::memcpy(output, result, bytes);
  }
}

void reduce_part(const BlockPlan& plan, Span range, Span block, uint32_t number) {
  const Roles& roles = plan.roles;
  std::array<const std::byte*, kMostLargeCallRanks> room;
  const std::span<const std::byte*> sources(room.data(), static_cast<size_t>(plan.ranks));
  const bool collects = roles.collects(plan.rank) || plan.shape.kind == Shape::Kind::kChunks;
  std::byte* const kept =
      roles.keeps_results()
          ? plan.slot(number) + plan.shape.place(block, plan.rank, plan.rank, range.begin)
          : nullptr;
  // Without a place here, compute the result directly in the root's output.
  std::byte* elsewhere = kept;
  if (!collects && kept == nullptr)
    elsewhere = plan.peer(plan.call->call->root).output + range.begin;
  const Pieces into =
      collects ? own_output(plan, plan.rank, range) : Pieces(elsewhere, range.bytes());
  const Pieces own = own_input(plan, plan.rank, range);
  const bool several = collects && (roles.pushes() || kept != nullptr);
  // Two ranks get a result at once; for an in-place reduction both destinations were just read.
  const bool pairs = several && plan.ranks == 2 && kept == nullptr;
  // Memory just read is cached. Any other destination would be loaded only to be overwritten.
  const bool goes_past = plan.past_caches && (collects || kept == nullptr);
  alignas(64) std::array<std::byte, kPastBytes> hot;
  for (size_t at = 0; at < range.bytes();) {
    const Piece target = into.from(at), source = own.from(at);
    size_t now = find_sources(plan, sources, source.data, range.begin + at,
                              std::min(target.bytes, source.bytes), block, number);
    const auto passes = [&](const std::byte* place) {
      return goes_past && std::ranges::find(sources, place) == sources.end();
    };
    const bool past = passes(target.data);
    std::byte* twin = pairs && !past ? plan.peer(1 - plan.rank).output + range.begin + at : nullptr;
    if (passes(twin)) twin = nullptr;
    if (several && twin == nullptr) now = std::min(now, kHotBytes);
    if (past) now = std::min(now, hot.size());
    std::byte* const result = past ? hot.data() : target.data;
    plan.call->plan->reduction.combine_all(
        result, twin, sources, now / size_of(plan.call->call->type), plan.call->plan->scaling);
    if (past) copy_past_caches(target.data, result, now);
    // Without a sample: pool threads come here, and one thread at a time judges a WriteMode.
    if (kept != nullptr && several) {
      if (plan.staging->write_mode.goes_past_caches())
        copy_past_caches(kept + at, result, now);
      else
        std::memcpy(kept + at, result, now);
    }
    if (several && twin == nullptr) spread(plan, result, range.begin + at, now, goes_past);
    at += now;
  }
}

}  // namespace

void stage_block(const BlockPlan& plan, uint32_t number) {
  const Span block = plan.shape.block(number);
  const auto put = [&](int to, Span range) {
    std::byte* const at = plan.slot(number) + plan.shape.place(block, plan.rank, to, range.begin);
    copy_pieces(Pieces(at, range.bytes()), own_input(plan, to, range),
                [&](std::byte* target, const std::byte* source, size_t bytes) {
                  plan.staging->write_mode.copy(target, source, bytes);
                });
  };
  switch (plan.shape.kind) {
    case Shape::Kind::kWhole:
      return put(plan.rank, plan.taken(plan.rank, block));
    case Shape::Kind::kCut: {
      if (plan.roles.sums_all()) return put(plan.rank, block);
      const Span own = plan.shape.share(block, plan.rank);
      put(plan.rank, {block.begin, own.begin});
      put(plan.rank, {own.end, block.end});
      return;
    }
    case Shape::Kind::kChunks:
      for (int to = 0; to < plan.ranks; ++to)
        if (to != plan.rank &&
            (plan.roles.reducing() || plan.roles.path(plan.rank, to) == Path::kStaged))
          put(to, plan.taken(to, block));
  }
}

void copy_own(const BlockPlan& plan, Span range) {
  if (gives(plan.collective, plan.call->call->root, plan.rank, plan.rank))
    move(plan, own_output(plan, plan.rank, plan.given(plan.rank, range)),
         own_input(plan, plan.rank, plan.taken(plan.rank, range)), std::memcpy);
}

void copy_block(const BlockPlan& plan, uint32_t number) {
  const Span block = plan.shape.block(number);
  const auto between_cores = [&](std::byte* to, const std::byte* from, size_t bytes) {
    copy_between_cores(to, from, bytes, plan.shape.payload);
  };
  // Each rank begins with another peer, so that not all ranks read the same memory.
  for (int i = 1; i < plan.ranks; ++i) {
    const int peer = (plan.rank + i) % plan.ranks;
    if (const Span range = own_part(plan, plan.given(peer, block), peer, plan.rank);
        range.bytes() > 0) {
      const bool staged = plan.roles.path(peer, plan.rank) == Path::kStaged;
      move(
          plan, own_output(plan, peer, range),
          staged ? staged_input(plan, peer, range, block, number) : mapped_input(plan, peer, range),
          between_cores);
    }
    if (const Span range = own_part(plan, plan.taken(peer, block), plan.rank, peer);
        range.bytes() > 0)
      move(plan, Pieces(plan.peer(peer).output + range.begin, range.bytes()),
           own_input(plan, peer, range), between_cores);
  }
}

void reduce_block(const BlockPlan& plan, uint32_t number) {
  const Span block = plan.shape.block(number);
  const Span range = share_of(plan, block);
  ThreadPool& thread_pool = *plan.call->resources->thread_pool;
  const size_t threads = thread_pool.threads(range.bytes(), static_cast<size_t>(plan.ranks));
  if (threads == 1) return reduce_part(plan, range, block, number);
  const auto parts = static_cast<uint32_t>(threads * kPartsPerThread);
  thread_pool.run(threads, parts, [&](uint32_t part) {
    const size_t grains = (range.bytes() + kGrain - 1) / kGrain;
    const auto at = [&](uint32_t i) {
      return std::min(range.end, range.begin + kGrain * even_begin(grains, i, parts));
    };
    reduce_part(plan, {at(part), at(part + 1)}, block, number);
  });
}

void fetch_block(const BlockPlan& plan, uint32_t number) {
  const Span block = plan.shape.block(number);
  for (int i = 1; i < plan.ranks; ++i) {
    const int peer = (plan.rank + i) % plan.ranks;
    const Span share = plan.shape.share(block, peer);
    std::byte* const from =
        plan.slot_of(peer, number) + plan.shape.place(block, peer, peer, share.begin);
    copy_pieces(own_output(plan, peer, share), Pieces(from, share.bytes()), std::memcpy);
  }
}

}  // namespace hccl_like
