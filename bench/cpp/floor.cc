#include "bench/cpp/floor.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace hccl_like::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Part `rank` of `ranks` parts of `bytes`, in whole floats.
struct Part {
  size_t begin, bytes;
};
Part part(size_t bytes, int rank, int ranks) {
  const size_t floats = bytes / 4, all = static_cast<size_t>(ranks), r = static_cast<size_t>(rank);
  const size_t begin = floats * r / all, end = floats * (r + 1) / all;
  return {begin * 4, (end - begin) * 4};
}

// Bytes of a share, in whole floats: nearly what the row has.
size_t share_of(const Case& row) { return row.count * size_of(row.type) / 4 * 4; }

}  // namespace

std::vector<Seen> places(const Shape& shape, const Case& row, bool in_place, std::byte* arena,
                         size_t piece) {
  std::vector<Seen> all;
  const size_t one = share_of(row);
  for (int rank = 0; rank < row.ranks; ++rank) {
    std::byte* const first = arena + 2 * piece * static_cast<size_t>(rank);
    Seen seen{first, first + piece};
    const bool owns_whole = !shape.rooted || rank == row.root;
    const size_t offset = one * static_cast<size_t>(rank);
    if (in_place && shape.send_shares == shape.receive_shares)
      seen.receive = seen.send;
    else if (in_place && owns_whole)
      (shape.send_shares ? seen.receive : seen.send) =
          (shape.send_shares ? seen.send : seen.receive) + offset;
    all.push_back(seen);
  }
  return all;
}

std::vector<Move> moves(const Shape& shape, const Case& row, bool in_place,
                        const std::vector<Seen>& all) {
  const auto& [rank, ranks, count, type, op, root] = row;
  const size_t one = share_of(row);
  const Seen& mine = all[static_cast<size_t>(rank)];
  const auto at = [&](int r) -> const Seen& { return all[static_cast<size_t>(r)]; };
  const auto offset = [&](int r) { return one * static_cast<size_t>(r); };
  std::vector<Move> found;
  const auto copy = [&](std::byte* into, const std::byte* from) {
    if (into != from) found.push_back({{into}, {from}, one});
  };
  switch (shape.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kBroadcast: {
      const Part mine_of_it = part(one, rank, ranks);
      Move move{.bytes = mine_of_it.bytes};
      for (int r = 0; r < ranks; ++r) {
        const bool gives = shape.collective != Collective::kBroadcast || r == root;
        const bool takes =
            shape.collective == Collective::kAllReduce ||
            (shape.collective == Collective::kReduce ? r == root : r != root || !in_place);
        if (gives) move.from.push_back(at(r).send + mine_of_it.begin);
        if (takes) move.into.push_back(at(r).receive + mine_of_it.begin);
      }
      found.push_back(move);
      break;
    }
    case Collective::kReduceScatter: {
      Move move{.into = {mine.receive}, .bytes = one};
      for (int r = 0; r < ranks; ++r) move.from.push_back(at(r).send + offset(rank));
      found.push_back(move);
      break;
    }
    case Collective::kAllGather:
      for (int r = 0; r < ranks; ++r) copy(mine.receive + offset(r), at(r).send);
      break;
    case Collective::kAllToAll:
      for (int r = 0; r < ranks; ++r) copy(mine.receive + offset(r), at(r).send + offset(rank));
      break;
    case Collective::kGather:
      copy(at(root).receive + offset(rank), mine.send);
      break;
    case Collective::kScatter:
      copy(mine.receive, at(root).send + offset(rank));
      break;
    case Collective::kSend:
      copy(mine.receive, at((rank + ranks - 1) % ranks).send);
      break;
    default:
      break;
  }
  return found;
}

double Floor::measure(const Shape& shape, const Case& row, bool in_place, bool dirty, int untimed,
                      int repeats) const {
  const size_t one = share_of(row), whole = one * static_cast<size_t>(row.ranks);
  const size_t sent = shape.send_shares ? whole : one;
  const size_t received = shape.receive_shares ? whole : one;
  if (shape.collective == Collective::kBarrier || std::max(sent, received) < kLeast) return 0;
  const std::vector<Seen> all = places(shape, row, in_place, arena_, piece_);
  const Seen& mine = all[static_cast<size_t>(row.rank)];
  const std::vector<Move> work = moves(shape, row, in_place, all);
  const auto ranks = static_cast<uint32_t>(row.ranks);
  double least = std::numeric_limits<double>::infinity();
  for (const bool streaming : {false, true}) {
    std::vector<double> times;
    for (int i = -1 - untimed; i < repeats; ++i) {
      if (dirty || i < 0) {
        overwrite({mine.receive, received}, 0x3f800000);
        overwrite({mine.send, sent}, 0x3f800000);
      }
      barrier_.wait(ranks);
      const auto begin = Clock::now();
      for (const Move& move : work) run(move, streaming);
      if (crowded_) barrier_.wait(ranks);  // it takes until the last one had its turn
      const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
      if (i >= 0) times.push_back(took.count());
      barrier_.wait(ranks);  // nobody rewrites what another still reads
    }
    std::ranges::sort(times);
    least = std::min(least, times[times.size() / 2]);
  }
  return least;
}

}  // namespace hccl_like::bench
