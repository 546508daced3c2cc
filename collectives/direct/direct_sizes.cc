// How much goes from whom to whom in a direct call, and where in their memory it lies.
#include <algorithm>
#include <cstring>
#include <limits>

#include "collectives/direct/direct_run.h"
#include "core/copy.h"

namespace hccl_like {
namespace {

// The bytes that Shape calls the payload, as far as this rank knows them.
size_t payload_of(const BoardCall& call) {
  if (call.chunks != Chunks::kEqual)
    return std::max(call.input->largest_chunk(), call.output->largest_chunk());
  const auto own = static_cast<size_t>(call.board->rank());
  switch (call.collective) {
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return call.output->bytes(own);
    case Collective::kAllToAll:
    case Collective::kAllGather:
    case Collective::kGather:
      return call.input->bytes(own);
    case Collective::kReduce:
      return call.input->total_bytes();
    default:
      return std::max(call.input->total_bytes(), call.output->total_bytes());
  }
}

// What a lap takes of each lane. More ranks than cores take turns: the more one of them finds, the fewer turns they need.
// One writer and one reader work side by side and stay ahead of nobody: their slots should leave room in one core's cache.
// What two ranks exchange may lie in cells, of which one takes a lap.
size_t room_of(const BoardCall& call, bool exchanges) {
  if (exchanges) return PairCells::kBytes;
  switch (call.collective) {
    case Collective::kBroadcast:
      return call.board->size() == 2 ? Lane::kSlotBytes / 8 : Lane::kSlotBytes / 2;
    case Collective::kAllGather:
    case Collective::kGather:
      return Lane::kSlotBytes / 2;
    default:
      return Lane::kSlotBytes;
  }
}

// What a peer has read lies in its caches still: to write that again takes two to four times as long as to write what has left
// them since. So calls go round all of a lane, but for the smallest, which the first cache holds.
constexpr size_t kMostSlots = 128;
// Whether nobody reads the last lane any more the other ranks tell in lines of theirs, and to wait for those takes as long as to copy some
// KiB. Calls that put no more than this into a lane do not ask, and so use two lanes in turns, of which the other one is found to be free
// when this one is retired; for larger ones the way back to the same lane, which is in a cache, is worth more.
constexpr size_t kMostAlternating = 16 << 10;

// Whether two ranks give each other as much as they take.
bool exchange(const BoardCall& call) {
  if (call.board->size() != 2) return false;
  switch (call.collective) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return true;
    default:
      return false;
  }
}

// Whether all that the ranks touch is more than the last cache holds. A broadcast has one buffer a rank, most often; what passes through
// lanes takes room for them, too.
bool goes_past_caches(const BoardCall& call) {
  const size_t in = call.input->total_bytes(), out = call.output->total_bytes();
  const bool one_buffer =
      call.collective == Collective::kBroadcast &&
      call.input->contiguous(0, 0, in).data == call.output->contiguous(0, 0, out).data;
  const size_t touched = static_cast<size_t>(call.board->size()) * (one_buffer ? in : in + out);
  return call.shared_output != nullptr ? touched > last_cache_bytes()
                                       : touched >= last_cache_bytes();
}

// What a rank of several reads in the time that a meeting takes: on a core of its own, and, for each other in each turn, where they take
// turns at one.
constexpr size_t kReadsInMeeting = 8 << 10, kReadsInTurn = 5632;

// Where chunk `chunk` begins, if the chunks of a layout lie side by side.
uint64_t begin_of(const Layout& layout, int chunk) {
  uint64_t begin = 0;
  for (int i = 0; i < chunk; ++i) begin += layout.bytes(static_cast<size_t>(i));
  return begin;
}

// Offsets that another rank has told: what is too large stays too large.
uint64_t add(uint64_t a, uint64_t b) {
  return a > std::numeric_limits<uint64_t>::max() - b ? std::numeric_limits<uint64_t>::max()
                                                      : a + b;
}

}  // namespace

void DirectRun::measure() {
  const size_t payload = payload_of(*call_);
  exchanges_ = exchange(*call_);
  slot_bytes_ = room_of(*call_, exchanges_);
  // Of pairs nobody knows how little it is.
  if (call_->chunks != Chunks::kPairs)
    slot_bytes_ = std::min(slot_bytes_, Shape::room(call_->collective, ranks_, payload));
  shape_ = Shape::of(call_->collective, ranks_, payload, slot_bytes_);
  most_laps_ = shape_.laps;
  alternates_ = slot_bytes_ * shape_.laps <= kMostAlternating;
  slots_ = static_cast<uint32_t>(std::min(kMostSlots, Lane::kPayloadBytes / slot_bytes_));
  past_caches_ = goes_past_caches(*call_);
  for (int rank = 0; rank < ranks_; ++rank) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    const bool equal = call_->chunks == Chunks::kEqual;
    peer.gives = equal ? payload : call_->output->bytes(output_chunk(rank));
    peer.takes = equal ? payload : call_->input->bytes(input_chunk(rank));
  }
}

// To sum all of an all-reduce, not a share for all, saves a meeting of the ranks. Two read no more of each other for it, if their
// memory is not mapped; several do.
bool DirectRun::would_sum_all() const {
  if (call_->collective != Collective::kAllReduce) return false;
  const bool shares = shares_input() || call_->shared_output != nullptr;
  if (ranks_ == 2) return !shares;
  const auto ranks = static_cast<size_t>(ranks_), cores = static_cast<size_t>(call_->cores);
  const bool crowded = cores > 0 && ranks > cores;
  const size_t more = (ranks - 1) * (ranks - 2) * shape_.payload / ranks;
  const size_t least = crowded ? kReadsInTurn * ranks * ranks / cores : kReadsInMeeting;
  return more <= least / (shares ? 2 : 1);
}

size_t DirectRun::input_chunk(int to) const {
  if (shape_.kind == Shape::Kind::kCut || call_->collective == Collective::kBroadcast) return 0;
  return static_cast<size_t>(shape_.kind == Shape::Kind::kChunks ? to : rank_);
}

size_t DirectRun::output_chunk(int from) const {
  if (shape_.kind == Shape::Kind::kCut || call_->collective == Collective::kBroadcast) return 0;
  return static_cast<size_t>(collects_chunks(call_->collective) ? from : rank_);
}

void DirectRun::tell_pairs() {
  const bool chunks = shape_.kind == Shape::Kind::kChunks;
  const bool collects = collects_chunks(call_->collective);
  Pair pair;
  for (int rank = 0; rank < ranks_; ++rank) {
    const Peer& peer = this->peer(rank);
    pair.gives = peer.takes;
    pair.takes = peer.gives;
    lane_->pairs[static_cast<size_t>(rank)] = pair;
    // What follows belongs to the next rank.
    if (chunks) pair.input_at += call_->input->bytes(static_cast<size_t>(rank));
    if (collects) pair.output_at += call_->output->bytes(static_cast<size_t>(rank));
  }
}

// Where in `rank`'s memory lies what it gives to this one and takes from it.
void DirectRun::find(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  uint64_t input_at = 0, output_at = 0;
  if (call_->chunks == Chunks::kPairs) {
    // Copied before it is looked at, as all that others write.
    Pair pair;
    std::memcpy(&pair, &peer.lane->pairs[static_cast<size_t>(rank_)], sizeof pair);
    const auto compare = [&](bool moves, uint64_t told, size_t expected) {
      if (moves && told != expected && !mismatch_)
        mismatch_ = {rank, call_->fingerprint, told, expected};
    };
    compare(roles_.path(rank, rank_) != Path::kNone, pair.gives, peer.gives);
    compare(roles_.path(rank_, rank) != Path::kNone, pair.takes, peer.takes);
    input_at = pair.input_at;
    output_at = pair.output_at;
  } else {
    const bool equal = call_->chunks == Chunks::kEqual;
    if (shape_.kind == Shape::Kind::kChunks)
      input_at =
          equal ? static_cast<uint64_t>(rank_) * shape_.payload : begin_of(*call_->input, rank_);
    if (collects_chunks(call_->collective))
      output_at =
          equal ? static_cast<uint64_t>(rank_) * shape_.payload : begin_of(*call_->output, rank_);
  }
  peer.input_offset = add(peer.input_offset, input_at);
  peer.output_offset = add(peer.output_offset, output_at);
}

// The largest chunk of any rank decides how many laps there are.
void DirectRun::agree_about_laps(size_t largest) {
  if (call_->chunks != Chunks::kPairs) return;
  shape_ = Shape::of(call_->collective, ranks_, std::max(shape_.payload, largest), slot_bytes_);
  most_laps_ = std::max<uint64_t>(most_laps_, shape_.laps);
}

}  // namespace hccl_like
