#include "collectives/board/board_call.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

namespace hccl_like {
namespace {

// Every rank reads every other's line: with more ranks than this, fewer messages cost less.
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
  if (chunks != Chunks::kEqual || ranks > kMostRanks || call.collective == Collective::kSend ||
      call.collective == Collective::kRecv)
    return std::nullopt;
  size_t bytes = 0;
  switch (call.collective) {
    case Collective::kScatter:
      bytes = call.output.total_bytes() * static_cast<size_t>(ranks);
      break;
    case Collective::kAllGather:
    case Collective::kGather:
      bytes = call.input.total_bytes();
      break;
    default:
      bytes = std::max(call.input.total_bytes(), call.output.total_bytes());
  }
  if (bytes > BoardArea::kPayloadBytes) return std::nullopt;
  return bytes;
}

void BoardCall::show_fingerprint() const { board->show(number, fingerprint, bytes); }

void BoardCall::show() const {
  const size_t given = input->total_bytes();
  std::byte* to = board->payload(number, given);
  // The chunks of a single() layout are all empty but one, and visited alike.
  const bool whole = collective == Collective::kAllReduce || collective == Collective::kReduce ||
                     collective == Collective::kBroadcast;
  const bool shown = (collective != Collective::kBroadcast && collective != Collective::kScatter) ||
                     board->rank() == root;
  if (shown && given > 0) copy_in(to, *input, whole ? 1 : static_cast<size_t>(board->size()));
  board->show(number, fingerprint, given);
}

void BoardCall::finish() const {
  const auto ranks = static_cast<size_t>(board->size());
  const auto own = static_cast<size_t>(board->rank());
  // Where the part of `rank`'s payload begins that goes to `chunk` of the output.
  const auto copy_out = [&](size_t chunk, size_t rank, size_t shown, size_t at) {
    const std::byte* from = board->payload(static_cast<int>(rank), number, shown) + at;
    output->visit(chunk, 0, output->bytes(chunk), [&](Region region) {
      std::memcpy(region.data, from, region.bytes);
      from += region.bytes;
    });
  };
  const auto combine = [&](size_t chunk, size_t shown, size_t at) {
    std::array<const std::byte*, kMostRanks> sources;
    for (size_t rank = 0; rank < ranks; ++rank)
      sources[rank] = board->payload(static_cast<int>(rank), number, shown) + at;
    output->visit(chunk, 0, output->bytes(chunk), [&](Region region) {
      reduction.combine_all(region.data, nullptr, std::span(sources).first(ranks),
                            region.bytes / size_of(type), scaling);
      for (size_t rank = 0; rank < ranks; ++rank) sources[rank] += region.bytes;
    });
  };
  switch (collective) {
    case Collective::kAllReduce:
      return combine(0, output->total_bytes(), 0);
    case Collective::kReduce:
      if (board->rank() == root) combine(0, output->total_bytes(), 0);
      return;
    case Collective::kReduceScatter:
      return combine(own, output->bytes(own) * ranks, own * output->bytes(own));
    case Collective::kBroadcast:
      return copy_out(0, static_cast<size_t>(root), output->total_bytes(), 0);
    case Collective::kAllGather:
      for (size_t rank = 0; rank < ranks; ++rank) copy_out(rank, rank, output->bytes(rank), 0);
      return;
    case Collective::kGather:
      if (board->rank() != root) return;
      for (size_t rank = 0; rank < ranks; ++rank) copy_out(rank, rank, output->bytes(rank), 0);
      return;
    case Collective::kScatter:
      return copy_out(own, static_cast<size_t>(root), output->bytes(own) * ranks,
                      own * output->bytes(own));
    case Collective::kAllToAll:
      for (size_t rank = 0; rank < ranks; ++rank)
        copy_out(rank, rank, output->total_bytes(), own * output->bytes(rank));
      return;
    case Collective::kBarrier:
    case Collective::kSend:
    case Collective::kRecv:
      return;
  }
}

bool others_are_there(const BoardCall& call, Patience& patience, bool patient, WritePace* timed) {
  using Clock = std::chrono::steady_clock;
  Board& board = *call.board;
  bool told = false;
  const auto tell = [&] {
    if (!std::exchange(told, true)) board.ring();
  };
  const auto find = [&](int rank) -> const Board::Line* {
    Clock::time_point begin;
    const auto look = [&] {
      if (timed != nullptr) begin = Clock::now();
      return board.line(rank, call.number);
    };
    const Board::Line* line;
    while ((line = look()) == nullptr) {
      if (!patient) return nullptr;
      // From here on they could wait for long.
      if (patience.spun()) tell();
      if (!patience.wait()) return nullptr;
    }
    if (timed != nullptr) timed->looked(Clock::now() - begin);
    return line;
  };
  bool there = true;
  for (int rank = 0; rank < board.size() && there; ++rank) {
    if (rank == board.rank()) continue;
    const Board::Line* const line = find(rank);
    if (line != nullptr) board.heed(rank, *line);
    there = line != nullptr && line->fingerprint == call.fingerprint;
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
    const Board::Line* line = call.board->line(rank, call.number);
    if (line == nullptr) return false;
    call.board->heed(rank, *line);
    if (line->fingerprint == call.fingerprint) return true;
    if (!mismatch_) mismatch_ = {rank, line->fingerprint, line->bytes, {}};
    return false;
  });
  return missing_.size() != before || mismatch_;
}

}  // namespace hccl_like
