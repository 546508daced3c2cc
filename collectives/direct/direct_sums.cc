// What a direct call reduces, one lap at a time.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "collectives/direct/direct_run.h"
#include "core/copy.h"

namespace hccl_like {
namespace {

// A result that goes to several places is copied while it is in the first-level cache.
constexpr size_t kHotBytes = 16 << 10;
// What goes past the caches is made there, too.
constexpr size_t kPastBytes = 8 << 10;
// Of a pass that several threads make: some are slower than others.
constexpr size_t kPartsPerHand = 4;
constexpr size_t kGrain = 64;

}  // namespace

// What of a lap this rank reduces.
Span DirectRun::share_of(Span lap) const {
  if (shape_.kind != Shape::Kind::kCut) return given(rank_, lap);
  return roles_.sums_all() ? lap : shape_.share(lap, rank_);
}

void DirectRun::reduce(Span range, Span lap, uint32_t number) {
  const size_t hands = call_->crew->hands(range.bytes(), static_cast<size_t>(ranks_));
  if (hands == 1) return reduce_part(range, lap, number);
  const auto parts = static_cast<uint32_t>(hands * kPartsPerHand);
  call_->crew->run(hands, parts, [&](uint32_t part) {
    const size_t grains = (range.bytes() + kGrain - 1) / kGrain;
    const auto at = [&](uint32_t i) {
      return std::min(range.end, range.begin + kGrain * even_begin(grains, i, parts));
    };
    reduce_part({at(part), at(part + 1)}, lap, number);
  });
}

// What all ranks give to this one's share, from `offset` on. Returns how many of `bytes` lie side by side at each.
size_t DirectRun::find_sources(std::span<const std::byte*> sources, const std::byte* own,
                               size_t offset, size_t bytes, Span lap, uint32_t number) const {
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::byte*& source = sources[static_cast<size_t>(rank)];
    if (rank == rank_) {
      source = own;
    } else if (roles_.input_mapped(rank)) {
      const Piece piece = peer(rank).input.from(offset);
      source = piece.data;
      bytes = std::min(bytes, piece.bytes);
    } else {
      source = input_of(rank, number) + shape_.place(lap, rank, rank_, offset);
    }
  }
  return bytes;
}

// To all others that want a result in their own memory.
void DirectRun::spread(const std::byte* result, size_t offset, size_t bytes, bool goes_past) const {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_ || !roles_.collects(rank) || !roles_.output_mapped(rank)) continue;
    std::byte* const output = peer(rank).output + offset;
    if (goes_past && peer(rank).output != peer(rank).input.from(0).data)
      copy_past_caches(output, result, bytes);
    else
      std::memcpy(output, result, bytes);
  }
}

void DirectRun::reduce_part(Span range, Span lap, uint32_t number) const {
  std::array<const std::byte*, kMostDirectRanks> room;
  const std::span<const std::byte*> sources(room.data(), static_cast<size_t>(ranks_));
  const bool collects = roles_.collects(rank_) || shape_.kind == Shape::Kind::kChunks;
  std::byte* const kept = roles_.keeps_results()
                              ? slot(number) + shape_.place(lap, rank_, rank_, range.begin)
                              : nullptr;
  // Without a place of its own the result is made in the first place that wants it.
  std::byte* elsewhere = kept;
  if (!collects && kept == nullptr) elsewhere = peer(call_->root).output + range.begin;
  const Pieces into = collects ? own_output(rank_, range) : Pieces(elsewhere, range.bytes());
  const Pieces own = own_input(rank_, range);
  const bool several = collects && (roles_.pushes() || kept != nullptr);
  // Two ranks get a result at once: of what is reduced in place, each line of either was just read.
  const bool pairs = several && ranks_ == 2 && kept == nullptr;
  const std::byte* const next = next_input(lap.bytes());
  // What was read a moment ago is in a cache. Any other place of the result would be read only to be overwritten.
  const bool goes_past = past_caches_ && (collects || kept == nullptr);
  alignas(64) std::array<std::byte, kPastBytes> hot;
  for (size_t at = 0; at < range.bytes();) {
    const Piece target = into.from(at), source = own.from(at);
    size_t now = find_sources(sources, source.data, range.begin + at,
                              std::min(target.bytes, source.bytes), lap, number);
    const auto passes = [&](const std::byte* place) {
      return goes_past && std::ranges::find(sources, place) == sources.end();
    };
    const bool past = passes(target.data);
    std::byte* twin = pairs && !past ? peer(1 - rank_).output + range.begin + at : nullptr;
    if (passes(twin)) twin = nullptr;
    if (several && twin == nullptr) now = std::min(now, kHotBytes);
    if (past) now = std::min(now, hot.size());
    std::byte* const result = past ? hot.data() : target.data;
    call_->reduction.combine_all(result, twin, sources, now / size_of(call_->type), call_->scaling);
    if (past)
      copy_past_caches(target.data, result, now,
                       next == nullptr ? next : next + (range.begin - lap.begin + at));
    if (kept != nullptr && several) write_lane(kept + at, result, now, /*in_order=*/false);
    if (several && twin == nullptr) spread(result, range.begin + at, now, goes_past);
    at += now;
  }
}

}  // namespace hccl_like
