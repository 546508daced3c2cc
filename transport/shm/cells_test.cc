#include "transport/shm/cells.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "transport/shm/shm_pair.h"
#include "transport/shm/shm_wire.h"
#include "transport/wire_contract.h"

namespace hccl_like {
namespace {

TEST(CellDeck, HalfOfTheCellsBeginAtEachSide) {
  for (const int side : {0, 1}) {
    CellDeck deck(side);
    for (uint32_t i = kCells / 2; i-- > 0;) {
      const auto cell = deck.take(kCellBytes);
      ASSERT_TRUE(cell);
      EXPECT_EQ(cell->number, static_cast<uint32_t>(side) * kCells / 2 + i);
      EXPECT_FALSE(cell->made);
    }
    EXPECT_FALSE(deck.take(kCellBytes));
  }
}

TEST(CellDeck, WhatCameLastGoesFirst) {
  CellDeck deck(0);
  ASSERT_TRUE(deck.put({.number = 2, .hot = 5000}));
  ASSERT_TRUE(deck.put({.number = 3, .hot = 5000}));
  EXPECT_EQ(deck.take(5000)->number, 3u);
  EXPECT_EQ(deck.take(5000)->number, 2u);
}

TEST(CellDeck, AShortPartLeavesALongCellWhereItIs) {
  CellDeck deck(0);
  while (deck.take(kCellBytes)) {
  }
  ASSERT_TRUE(deck.put({.number = 0, .hot = 8000}));
  ASSERT_TRUE(deck.put({.number = 1, .hot = 4000}));
  EXPECT_FALSE(deck.take(2999));
  EXPECT_EQ(deck.take(3000)->number, 1u);
  EXPECT_FALSE(deck.take(5999));
  EXPECT_EQ(deck.take(6000)->number, 0u);
}

TEST(CellDeck, ACellThatIsHereCannotComeAgain) {
  CellDeck deck(0);
  EXPECT_FALSE(deck.put({.number = 1}));
  EXPECT_TRUE(deck.put({.number = 2}));
  EXPECT_FALSE(deck.put({.number = 2}));
}

class Cells : public testing::Test {
 protected:
  static constexpr size_t kPart = 16 << 10;

  void send(Wire& from, size_t bytes) {
    const std::vector<std::byte> data = stream_bytes(sent_, bytes);
    const ConstRegion region{data.data(), bytes};
    ASSERT_EQ(from.write({&region, 1}), bytes);
    sent_ += bytes;
  }
  // Where a part lies that has arrived.
  const std::byte* receive(Wire& at, size_t bytes) {
    const std::span<const std::byte> view = at.peek();
    EXPECT_GE(view.size(), bytes);
    const std::vector<std::byte> expected = stream_bytes(sent_ - bytes, bytes);
    EXPECT_TRUE(std::ranges::equal(view.first(std::min(bytes, view.size())), expected));
    at.release(bytes);
    return view.data();
  }

  WirePair pair_ = make_shm_pair(256 << 10);
  Wire& a_ = *pair_.ends[0];
  Wire& b_ = *pair_.ends[1];
  size_t sent_ = 0;
};

// Each end sees the cell at one place.
TEST_F(Cells, OneGoesToAndFroInAnExchange) {
  const std::byte *at_a = nullptr, *at_b = nullptr;
  for (int round = 0; round < 100; ++round) {
    send(a_, kPart);
    const std::byte* const there = receive(b_, kPart);
    send(b_, kPart);
    const std::byte* const back = receive(a_, kPart);
    if (round > 0) {
      ASSERT_EQ(there, at_b) << round;
      ASSERT_EQ(back, at_a) << round;
    }
    at_b = there, at_a = back;
  }
}

TEST_F(Cells, WithoutOneTheRingCarriesAll) {
  std::vector<const std::byte*> places;
  for (int round = 0; round < 5; ++round) {
    send(a_, kPart);
    places.push_back(receive(b_, kPart));
  }
  // Two cells, a page or more apart; then the ring, where part follows part, with a place for each that was in a cell.
  EXPECT_EQ(places[0] - places[1], static_cast<ptrdiff_t>(kCellBytes));
  EXPECT_EQ(places[3] - places[2], static_cast<ptrdiff_t>(kPart));
  EXPECT_EQ(places[4] - places[3], static_cast<ptrdiff_t>(kPart));
}

TEST_F(Cells, WhatIsWantedInOnePieceIsShownInOne) {
  const std::array<size_t, 6> parts{100, 5000, 48, 4096, 30, 6000};
  size_t all = 0;
  std::vector<std::byte> data = stream_bytes(0, 20'000);
  for (const size_t bytes : parts) {
    const ConstRegion region{data.data() + all, bytes};
    ASSERT_EQ(a_.write({&region, 1}), bytes);
    all += bytes;
  }
  for (size_t at = 0; at < all; at += 997) {
    const std::span<const std::byte> view = b_.peek(4096);
    ASSERT_GE(view.size(), std::min<size_t>(4096, all - at)) << at;
    ASSERT_TRUE(std::ranges::equal(view, std::span(data).subspan(at, view.size()))) << at;
    b_.release(std::min<size_t>(997, all - at));
  }
  EXPECT_TRUE(b_.peek().empty());
}

// A peer gone mad: this end has that cell.
TEST(CellsOfAStranger, OneThatIsHereAlreadyEndsTheConnection) {
  constexpr size_t kRing = 64 << 10;
  ShmSegment theirs = ShmSegment::create(kRing);
  auto sockets = make_socket_pair();
  Poller poller;
  ShmWire wire({.side = 1,
                .socket = std::move(sockets[1]),
                .segment = ShmSegment::open(Fd(::dup(theirs.fd())), kRing),
                .doorbell = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
                .commons = nullptr},
               poller);
  RingWriter writer = theirs.writer(0);
  ASSERT_TRUE(theirs.make_cell(kCells - 1));
  writer.put_in_cell(kCells - 1, 100);
  writer.publish();
  ASSERT_EQ(wire.peek(1).size(), 100u);
  EXPECT_EQ(wire.failure(), nullptr);
  wire.release(100);
  ASSERT_NE(wire.failure(), nullptr);
  EXPECT_EQ(wire.failure()->code, ErrorCode::kPeerLost);
  EXPECT_TRUE(wire.peek(1).empty());
}

}  // namespace
}  // namespace hccl_like
