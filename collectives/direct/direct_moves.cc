// What a direct call copies, one lap at a time; direct_sums.cc has what it adds up.
#include <algorithm>
#include <cstring>

#include "collectives/direct/direct_run.h"
#include "core/copy.h"
#include "core/fence.h"
#include "device/reduce/parallel.h"

namespace hccl_like {
namespace {

template <class Copy>
void copy_bytes(const Pieces& to, const Pieces& from, const Copy& copy) {
  const size_t bytes = to.bytes();
  for (size_t at = 0; at < bytes;) {
    const Piece target = to.from(at), source = from.from(at);
    const size_t now = std::min(target.bytes, source.bytes);
    if (target.data != source.data) copy(target.data, source.data, now);
    at += now;
  }
}

}  // namespace

void DirectRun::put(uint32_t number) {
  put(shape_.lap(number), place_for(number));
  if (own_cell_) cells()->give(*own_cell_);
}

void DirectRun::put(Span lap, std::byte* slot) {
  const auto put_part = [&](int to, Span range) {
    fill(slot + shape_.place(lap, rank_, to, range.begin), own_input(to, range));
  };
  switch (shape_.kind) {
    case Shape::Kind::kWhole:
      return put_part(rank_, taken(rank_, lap));
    case Shape::Kind::kCut: {
      if (roles_.sums_all()) return put_part(rank_, lap);
      const Span own = shape_.share(lap, rank_);
      put_part(rank_, {lap.begin, own.begin});
      put_part(rank_, {own.end, lap.end});
      return;
    }
    case Shape::Kind::kChunks:
      for (int to = 0; to < ranks_; ++to)
        if (to != rank_ && (roles_.reducing() || roles_.path(rank_, to) == Path::kStaged))
          put_part(to, taken(to, lap));
  }
}

void DirectRun::fill(std::byte* to, const Pieces& from) const {
  // Not in pairs of pages where it is read in order, as sums do.
  const auto write = [this](std::byte* target, const std::byte* source, size_t bytes) {
    if (own_cell_) return write_cell(target, source, bytes);
    write_lane(target, source, bytes, /*in_order=*/roles_.reducing());
  };
  copy_bytes(Pieces(to, from.bytes()), from, write);
}

void DirectRun::write_lane(std::byte* to, const std::byte* from, size_t bytes,
                           bool in_order) const {
  if (call_->write_pace == nullptr)
    std::memcpy(to, from, bytes);
  else
    lane_->told_way.tell(lane_->way,
                         call_->write_pace->copy(to, from, bytes, shape_.payload, in_order));
}

void DirectRun::write_cell(std::byte* to, const std::byte* from, size_t bytes) const {
  if (roles_.reducing())
    std::memcpy(to, from, bytes);
  else
    copy_in_pairs(to, from, bytes, bytes);
}

bool DirectRun::work(Span lap, uint32_t number) {
  if (roles_.pushes() && !begin_writing()) return false;
  find_input(number);
  if (roles_.reducing())
    reduce(share_of(lap), lap, number);
  else
    copy(lap, number);
  if (roles_.pushes()) lane_->writing.store(0, std::memory_order_release);
  keep(given_cell_);
  return true;
}

// A rank that gives up takes its line back, then looks whether somebody writes; this is the other half.
bool DirectRun::begin_writing() {
  lane_->writing.store(base_ + 1, std::memory_order_relaxed);
  full_fence();
  for (int rank = 0; rank < ranks_; ++rank)
    if (rank != rank_ && roles_.output_mapped(rank) && !still_shown(rank)) lost_ = true;
  if (lost_) lane_->writing.store(0, std::memory_order_release);
  return !lost_;
}

// `next`: as many bytes that are read afterwards, or null.
template <class Copy>
void DirectRun::move(const Pieces& to, const Pieces& from, const Copy& copy,
                     const std::byte* next) const {
  copy_bytes(to, from, [&](std::byte* target, const std::byte* source, size_t bytes) {
    const size_t hands = call_->crew->hands(bytes, static_cast<size_t>(ranks_));
    if (hands == 1 && past_caches_) {
      copy_past_caches(target, source, bytes, next);
      if (next != nullptr) next += bytes;
      return;
    }
    if (hands == 1) return copy(target, source, bytes);
    parallel_copy({*call_->crew, hands}, target, source, bytes);
  });
}

// A copy out of another rank's lane.
auto DirectRun::reads_lane(int rank) const {
  const WriteWay way = peer(rank).lane->way.load(std::memory_order_relaxed);
  return [way](std::byte* to, const std::byte* from, size_t bytes) {
    copy_written(way, to, from, bytes, bytes);
  };
}

// A copy of what another rank has put.
auto DirectRun::reads_input(int rank) const {
  return [this, lane = reads_lane(rank)](std::byte* to, const std::byte* from, size_t bytes) {
    if (given_cell_)
      copy_in_pairs(to, from, bytes, bytes);
    else
      lane(to, from, bytes);
  };
}

// Of collectives that only copy: what a rank gives to itself.
void DirectRun::keep_own(Span lap) {
  lap.begin = std::max(lap.begin, kept_);
  if (lap.begin >= lap.end) return;
  kept_ = lap.end;
  if (call_->collective == Collective::kAllGather || call_->collective == Collective::kAllToAll ||
      rank_ == call_->root)
    move(
        own_output(rank_, given(rank_, lap)), own_input(rank_, taken(rank_, lap)),
        [](std::byte* to, const std::byte* from, size_t bytes) { std::memcpy(to, from, bytes); },
        next_input(lap.bytes()));
}

void DirectRun::copy(Span lap, uint32_t number) {
  keep_own(lap);
  const auto between_memories = [this](std::byte* to, const std::byte* from, size_t bytes) {
    copy_between_cores(to, from, bytes, shape_.payload);
  };
  // Every rank begins with another one, so that no memory is read by all at once.
  for (int i = 1; i < ranks_; ++i) {
    const int peer = (rank_ + i) % ranks_;
    if (const Span range = own_part(given(peer, lap), peer, rank_); range.bytes() > 0) {
      if (roles_.path(peer, rank_) == Path::kStaged) {
        std::byte* const from =
            input_of(peer, number) + shape_.place(lap, peer, rank_, range.begin);
        move(own_output(peer, range), Pieces(from, range.bytes()), reads_input(peer),
             next_input(range.bytes()));
      } else {
        move(own_output(peer, range), given_input(peer, range), between_memories);
      }
    }
    if (const Span range = own_part(taken(peer, lap), rank_, peer); range.bytes() > 0)
      move(Pieces(this->peer(peer).output + range.begin, range.bytes()), own_input(peer, range),
           between_memories);
  }
}

void DirectRun::fetch(Span lap, uint32_t number) {
  for (int i = 1; i < ranks_; ++i) {
    const int peer = (rank_ + i) % ranks_;
    const Span share = shape_.share(lap, peer);
    copy_bytes(
        own_output(peer, share),
        Pieces(slot_of(peer, number) + shape_.place(lap, peer, peer, share.begin), share.bytes()),
        reads_lane(peer));
  }
}

namespace {

// Of a path that both ends share: all ranks move equally much if the root, which has to do with every other rank, moves
// one part in `ranks` of each pair's bytes.
size_t root_begins(Span lap, int ranks) {
  const auto parts = static_cast<size_t>(ranks);
  return lap.begin + lap.bytes() / parts * (parts - 1) / 64 * 64;
}

}  // namespace

Span DirectRun::own_part(Span lap, int from, int to) const {
  const Path path = roles_.path(from, to);
  if (path == Path::kShared) {
    const size_t root = root_begins(lap, ranks_);
    return rank_ == call_->root ? Span{root, lap.end} : Span{lap.begin, root};
  }
  if (path == Path::kNone) return {};
  return rank_ == (path == Path::kPushed ? from : to) ? lap : Span{};
}

Pieces DirectRun::own_input(int to, Span range) const {
  Pieces pieces;
  call_->input->visit(input_chunk(to), range.begin, range.end,
                      [&](Region region) { pieces.add(region.data, region.bytes); });
  return pieces;
}

// Of what another rank gives to this one, in its own memory.
Pieces DirectRun::given_input(int from, Span range) const {
  Pieces pieces;
  while (range.begin < range.end) {
    const Piece rest = peer(from).input.from(range.begin);
    const size_t bytes = std::min(rest.bytes, range.bytes());
    pieces.add(rest.data, bytes);
    range.begin += bytes;
  }
  return pieces;
}

Pieces DirectRun::own_output(int from, Span range) const {
  Pieces pieces;
  call_->output->visit(output_chunk(from), range.begin, range.end,
                       [&](Region region) { pieces.add(region.data, region.bytes); });
  return pieces;
}

// Read only: the mapping does not allow more.
std::byte* DirectRun::slot_of(int rank, uint32_t lap) const {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  return const_cast<std::byte*>(peer.lane->payload.data()) + slot_begin(peer.first_slot, lap);
}

}  // namespace hccl_like
