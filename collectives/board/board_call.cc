#include "collectives/board/board_call.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "transport/link/link.h"
#include "transport/link/traffic.h"

namespace hccl_like {
namespace {

// Every rank reads every other's slot; beyond this size, messages cost less.
constexpr int kMostRanks = 64;

void copy_in(std::byte* to, const Layout& from, size_t chunks) {
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    from.visit(chunk, 0, from.bytes(chunk), [&](Region region) {
      std::memcpy(to, region.data, region.bytes);
      to += region.bytes;
    });
  }
}

}  // namespace

std::optional<size_t> board_bytes(const Call& call, int ranks, Chunks chunks) {
  if (chunks != Chunks::kEqual || ranks > kMostRanks || is_point_to_point(call.collective))
    return std::nullopt;
  // Only the root knows the input of a scatter and the output of a gather.
  const Semantics meaning = semantics(call.collective);
  const size_t out = call.output.total_bytes(), in = call.input.total_bytes();
  size_t bytes = std::max(in, out);
  if (meaning.output == Chunking::kOwn && meaning.from_root)
    bytes = out * static_cast<size_t>(ranks);
  if (meaning.input == Chunking::kOwn) bytes = in;
  if (bytes > BoardArea::kPayloadBytes) return std::nullopt;
  return bytes;
}

void BoardCall::show() const {
  const size_t given = input->total_bytes();
  const Semantics meaning = semantics(call->collective);
  std::byte* to = board->payload(number, given);
  // All but one chunk of a single() layout are empty, so a loop over all chunks is correct.
  const size_t chunks = meaning.input == Chunking::kWhole ? 1 : static_cast<size_t>(board->size());
  if ((!meaning.from_root || board->rank() == call->root) && given > 0) copy_in(to, *input, chunks);
  board->show(number, fingerprint(), call->precedes ? bytes : given);
}

// Data of `rank` for this rank. All chunks have the same size.
const std::byte* BoardCall::shown_by(int rank, size_t chunk_bytes) const {
  const bool per_rank = semantics(call->collective).input == Chunking::kPerRank;
  const auto ranks = static_cast<size_t>(board->size()), own = static_cast<size_t>(board->rank());
  return board->payload(rank, number, chunk_bytes * (per_rank ? ranks : 1)) +
         (per_rank ? own * chunk_bytes : 0);
}

void BoardCall::combine(int chunk) const {
  const auto ranks = static_cast<size_t>(board->size()), own = static_cast<size_t>(chunk);
  const size_t bytes = output->bytes(own);
  std::array<const std::byte*, kMostRanks> sources;
  for (size_t rank = 0; rank < ranks; ++rank)
    sources[rank] = shown_by(static_cast<int>(rank), bytes);
  output->visit(own, 0, bytes, [&](Region region) {
    plan->reduction.combine_all(region.data, nullptr, std::span(sources).first(ranks),
                                region.bytes / size_of(call->type), plan->scaling);
    for (size_t rank = 0; rank < ranks; ++rank) sources[rank] += region.bytes;
  });
}

void BoardCall::finish() const {
  const Collective collective = call->collective;
  const int own = board->rank();
  if (collective == Collective::kBarrier) return;
  if (reduces(collective)) {
    if (gives(collective, call->root, own, own)) combine(output_chunk(collective, own, own));
    return;
  }
  for (int rank = 0; rank < board->size(); ++rank) {
    if (!gives(collective, call->root, rank, own)) continue;
    const auto chunk = static_cast<size_t>(output_chunk(collective, own, rank));
    const size_t bytes = output->bytes(chunk);
    const std::byte* from = shown_by(rank, bytes);
    output->visit(chunk, 0, bytes, [&](Region region) {
      std::memcpy(region.data, from, region.bytes);
      from += region.bytes;
    });
  }
}

bool others_are_there(const BoardCall& call, Backoff& backoff, bool may_wait) {
  Board& board = *call.board;
  bool told = false;
  const auto tell = [&] {
    if (!std::exchange(told, true)) board.ring();
  };
  const auto find = [&](int rank) {
    const Board::CallSlot* line;
    bool waited = false;
    while ((line = board.call_slot(rank, call.number)) == nullptr && may_wait) {
      waited = true;
      // Peers could wait for long from here on.
      if (backoff.spun()) tell();
      if (!backoff.wait()) break;
    }
    if (Link* const link = board.link(rank); waited && link)
      link->traffic().waited(backoff.waited());
    return line;
  };
  bool there = true;
  for (int rank = 0; rank < board.size() && there; ++rank) {
    if (rank == board.rank()) continue;
    const Board::CallSlot* const line = find(rank);
    if (line != nullptr) board.note_done(rank, *line);
    there = line != nullptr && line->fingerprint == call.fingerprint();
  }
  tell();
  return there;
}

void BoardWatch::begin(const BoardCall& call) {
  missing_.clear();
  mismatch_.reset();
  for (int rank = 0; rank < call.board->size(); ++rank)
    if (rank != call.board->rank()) missing_.push_back(rank);
}

bool BoardWatch::look(const BoardCall& call) {
  const size_t before = missing_.size();
  std::erase_if(missing_, [&](int rank) {
    const Board::CallSlot* line = call.board->call_slot(rank, call.number);
    if (line == nullptr) return false;
    call.board->note_done(rank, *line);
    if (line->fingerprint == call.fingerprint()) return true;
    if (!mismatch_) mismatch_ = {rank, line->fingerprint, line->bytes, {}};
    return false;
  });
  return missing_.size() != before || mismatch_;
}

}  // namespace hccl_like
