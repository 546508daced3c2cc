#include "transport/pair_cells.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "transport/shm/shm_pair.h"

namespace hccl_like {
namespace {

constexpr uint32_t kHalf = PairCells::kCount / 2;

class PairCellsTest : public testing::Test {
 protected:
  PairCellsTest() {
    for (const auto& end : wires_.ends) cells_.push_back(end->pair_cells());
  }
  void open_both() {
    for (PairCells* one : cells_) one->open();
  }

  WirePair wires_ = make_shm_pair(64 << 10);
  std::vector<PairCells*> cells_;
};

TEST_F(PairCellsTest, HalfOfThemBeginAtEachSide) {
  open_both();
  for (uint32_t side : {0, 1}) {
    EXPECT_FALSE(cells_[side]->gave_all());
    for (uint32_t i = kHalf; i-- > 0;) EXPECT_EQ(cells_[side]->take(), side * kHalf + i);
    EXPECT_TRUE(cells_[side]->gave_all());
    EXPECT_EQ(cells_[side]->take(), std::nullopt);
  }
}

TEST_F(PairCellsTest, NoneIsWrittenBeforeThePeerLooksForThem) {
  EXPECT_EQ(cells_[0]->take(), std::nullopt);
  cells_[0]->open();
  EXPECT_EQ(cells_[0]->take(), std::nullopt);
  EXPECT_EQ(cells_[1]->take(), 2 * kHalf - 1) << "side 0 is open";
  cells_[1]->open();
  EXPECT_EQ(cells_[0]->take(), kHalf - 1);
}

TEST_F(PairCellsTest, WhatCameLastGoesFirst) {
  open_both();
  cells_[0]->keep(kHalf);
  cells_[0]->keep(kHalf + 1);
  EXPECT_EQ(cells_[0]->take(), kHalf + 1);
  EXPECT_EQ(cells_[0]->take(), kHalf);
  EXPECT_EQ(cells_[0]->take(), kHalf - 1);
}

TEST_F(PairCellsTest, APeersNonsenseChangesNothing) {
  open_both();
  cells_[0]->keep(0);                  // is here
  cells_[0]->keep(PairCells::kCount);  // does not exist
  for (uint32_t i = kHalf; i-- > 0;) EXPECT_EQ(cells_[0]->take(), i);
  EXPECT_EQ(cells_[0]->take(), std::nullopt);
}

TEST_F(PairCellsTest, BothSeeTheSameMemoryAndNoTwoCellsShareAny) {
  open_both();
  for (uint32_t i = 0; i < PairCells::kCount; ++i)
    std::memset(cells_[0]->data(i), static_cast<int>(i + 1), PairCells::kBytes);
  for (uint32_t i = 0; i < PairCells::kCount; ++i) {
    const std::byte* const there = cells_[1]->data(i);
    ASSERT_NE(there, cells_[0]->data(i));
    EXPECT_EQ(std::count(there, there + PairCells::kBytes, static_cast<std::byte>(i + 1)),
              static_cast<ptrdiff_t>(PairCells::kBytes))
        << i;
  }
}

// Two threads a side, each of which takes a cell, hands it to the other side by a mailbox and keeps what it gets: whoever writes a cell
// has it alone, and none is lost.
TEST_F(PairCellsTest, ThreadsExchangeThemAndNoneIsLost) {
  constexpr int kRounds = 2'000, kThreads = 2;
  open_both();
  struct alignas(128) Box {
    std::atomic<int64_t> cell{-1};
  };
  std::array<std::array<Box, kThreads>, 2> boxes;  // by receiver
  std::atomic<int> wrong{0};
  const auto work = [&](size_t side, size_t number) {
    for (int round = 0; round < kRounds; ++round) {
      std::optional<uint32_t> mine;
      while (!(mine = cells_[side]->take())) std::this_thread::yield();
      const auto stamp = static_cast<int64_t>(round * 4 + static_cast<int>(side * 2 + number));
      std::memcpy(cells_[side]->data(*mine), &stamp, sizeof stamp);
      boxes[1 - side][number].cell.store(*mine, std::memory_order_release);
      std::atomic<int64_t>& inbox = boxes[side][number].cell;
      int64_t theirs;
      while ((theirs = inbox.exchange(-1, std::memory_order_acq_rel)) < 0)
        std::this_thread::yield();
      int64_t found = 0;
      std::memcpy(&found, cells_[side]->data(static_cast<uint32_t>(theirs)), sizeof found);
      wrong += found != static_cast<int64_t>(round * 4 + static_cast<int>((1 - side) * 2 + number));
      cells_[side]->keep(static_cast<uint32_t>(theirs));
      // The other side has taken what it was given.
      while (boxes[1 - side][number].cell.load(std::memory_order_acquire) >= 0)
        std::this_thread::yield();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t side : {0, 1})
      for (size_t number = 0; number < kThreads; ++number) threads.emplace_back(work, side, number);
  }
  EXPECT_EQ(wrong, 0);
  for (PairCells* one : cells_) {
    uint32_t held = 0;
    while (one->take()) ++held;
    EXPECT_EQ(held, kHalf);
  }
}

}  // namespace
}  // namespace hccl_like
