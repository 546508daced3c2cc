#include "bench/cpp/floor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace hccl_like::bench {
namespace {

constexpr size_t kCount = 1000;  // no multiple of most numbers of ranks
constexpr size_t kPiece = 5 * 4 * kCount;

// All ranks' buffers, as the floor sees them; rank r gives r + 1 everywhere, position by position
// 10 times the share more.
class Job {
 public:
  Job(const char* name, int ranks, bool in_place, int root = 0)
      : shape_(shape(name)),
        in_place_(in_place),
        row_{.rank = 0,
             .ranks = ranks,
             .count = kCount,
             .type = DataType::kFloat32,
             .op = ReduceOp::kSum,
             .root = shape_.rooted ? root : -1},
        memory_(2 * static_cast<size_t>(ranks) * kPiece),
        places_(bench::places(shape_, row_, in_place, memory_.data(), kPiece)) {
    const auto all = static_cast<size_t>(ranks);
    for (size_t rank = 0; rank < all; ++rank)
      for (size_t i = 0; i < kCount * (shape_.send_shares ? all : 1); ++i)
        put(places_[rank].send, i, given(rank, i / kCount));
    moved_ = 0;
    for (row_.rank = 0; row_.rank < ranks; ++row_.rank)
      for (const Move& move : moves(shape_, row_, in_place, places_)) {
        run(move, false);
        moved_ += move.bytes * (move.from.size() + move.into.size());
      }
  }

  static float given(size_t rank, size_t share) {
    return static_cast<float>(rank + 1 + 10 * share);
  }
  float received(size_t rank, size_t i) const {
    float value;
    std::memcpy(&value, places_[rank].receive + 4 * i, 4);
    return value;
  }
  // Read and written, by all ranks together, in operands of a count.
  double moved() const { return static_cast<double>(moved_) / (4.0 * kCount); }

 private:
  static void put(std::byte* at, size_t i, float value) { std::memcpy(at + 4 * i, &value, 4); }

  const Shape& shape_;
  bool in_place_;
  Case row_;
  std::vector<std::byte> memory_;
  std::vector<Seen> places_;
  size_t moved_ = 0;
};

const std::vector<size_t> kPositions{0, 1, 333, 334, 500, 666, 667, kCount - 1};

TEST(Floor, MovesAllThatAnAllReduceMustMove) {
  for (const int ranks : {2, 3, 5})
    for (const bool in_place : {false, true}) {
      const Job job("all_reduce", ranks, in_place);
      const float sum = static_cast<float>(ranks * (ranks + 1)) / 2;
      for (size_t rank = 0; rank < static_cast<size_t>(ranks); ++rank)
        for (const size_t i : kPositions) EXPECT_EQ(job.received(rank, i), sum) << rank << " " << i;
      EXPECT_DOUBLE_EQ(job.moved(),
                       2.0 * ranks);  // every rank's buffer is read once and written once
    }
}

TEST(Floor, MovesAllThatAReduceScatterMustMove) {
  for (const bool in_place : {false, true}) {
    const Job job("reduce_scatter", 3, in_place);
    for (size_t rank = 0; rank < 3; ++rank)
      EXPECT_EQ(job.received(rank, 999), 6.0f + 30.0f * static_cast<float>(rank));
    EXPECT_DOUBLE_EQ(job.moved(), 9 + 3);
  }
}

TEST(Floor, MovesAllThatAReduceMustMove) {
  const Job job("reduce", 3, true, 2);
  for (const size_t i : kPositions) EXPECT_EQ(job.received(2, i), 6.0f);
  EXPECT_DOUBLE_EQ(job.moved(), 3 + 1);
}

TEST(Floor, MovesAllThatABroadcastMustMove) {
  const Job job("broadcast", 3, true, 1);
  for (size_t rank = 0; rank < 3; ++rank)
    for (const size_t i : kPositions) EXPECT_EQ(job.received(rank, i), 2.0f);
  EXPECT_DOUBLE_EQ(job.moved(), 1 + 2);
}

TEST(Floor, MovesAllThatGatheringMustMove) {
  for (const bool in_place : {false, true}) {
    const Job job("all_gather", 3, in_place);
    for (size_t rank = 0; rank < 3; ++rank)
      for (size_t from = 0; from < 3; ++from)
        EXPECT_EQ(job.received(rank, from * kCount + 500), Job::given(from, 0));
    EXPECT_DOUBLE_EQ(job.moved(), in_place ? 12 : 18);
    const Job gather("gather", 3, in_place, 1);
    for (size_t from = 0; from < 3; ++from)
      EXPECT_EQ(gather.received(1, from * kCount + 1), Job::given(from, 0));
    EXPECT_DOUBLE_EQ(gather.moved(), in_place ? 4 : 6);
  }
}

TEST(Floor, MovesAllThatScatteringMustMove) {
  for (const bool in_place : {false, true}) {
    const Job job("scatter", 3, in_place, 2);
    for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(job.received(rank, 7), Job::given(2, rank));
    EXPECT_DOUBLE_EQ(job.moved(), in_place ? 4 : 6);
  }
  const Job job("alltoall", 3, false);
  for (size_t rank = 0; rank < 3; ++rank)
    for (size_t from = 0; from < 3; ++from)
      EXPECT_EQ(job.received(rank, from * kCount + 3), Job::given(from, rank));
  EXPECT_DOUBLE_EQ(job.moved(), 18);
}

TEST(Floor, MovesTheWholeRoundTheRing) {
  const Job job("sendrecv", 3, false);
  for (size_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(job.received(rank, 9), Job::given((rank + 2) % 3, 0));
  EXPECT_DOUBLE_EQ(job.moved(), 6);
}

TEST(Floor, KnowsNoneForABarrierAndForAHandfulOfBytes) {
  SharedBarrier* barrier = SharedBarrier::anonymous();
  std::vector<std::byte> arena(2 * kPiece);
  const Floor floor(*barrier, arena.data(), kPiece, false);
  Case row{.rank = 0,
           .ranks = 1,
           .count = 0,
           .type = DataType::kFloat32,
           .op = ReduceOp::kSum,
           .root = -1};
  EXPECT_EQ(floor.measure(shape("barrier"), row, false, true, 1, 3), 0);
  row.count = Floor::kLeast / 4 - 1;
  EXPECT_EQ(floor.measure(shape("all_gather"), row, false, true, 1, 3), 0);
  row.count = Floor::kLeast / 4;
  EXPECT_GT(floor.measure(shape("all_gather"), row, false, true, 1, 3), 0);
}

TEST(Move, StreamsTheSameBytesAtAnyAlignment) {
  std::vector<std::byte> from(1000), into(1000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i);
  for (const size_t begin : {size_t{0}, size_t{4}, size_t{60}}) {
    std::ranges::fill(into, std::byte{0});
    run({{into.data() + begin}, {from.data() + 8}, 800}, true);
    EXPECT_EQ(std::memcmp(into.data() + begin, from.data() + 8, 800), 0);
    EXPECT_EQ(into[begin + 800], std::byte{0});
  }
}

TEST(Move, ReadsEveryByte) {
  std::vector<std::byte> ones(4 * 131);
  overwrite(ones, 0x3f800000);
  EXPECT_EQ(read(ones), 131.0f);
}

}  // namespace
}  // namespace hccl_like::bench
