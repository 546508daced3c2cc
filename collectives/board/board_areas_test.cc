// Tests the placement of boards: the areas that ranks take for them, and parts, whose members find
// each other's areas by the parent.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "collectives/testing/board_calls.h"

namespace hccl_like {
namespace {

using namespace testing;

std::shared_ptr<Communicator> group_of_all(Rank me, const std::string& name) {
  return me.runtime.create(*me.store, me.rank, me.size, name, std::chrono::seconds(20),
                           Deadline::after(std::chrono::seconds(20)));
}

// The area that came back last.
uint32_t take_piece(Rank me) {
  const auto area = Board::take_area(*me.runtime.mesh().commons());
  EXPECT_TRUE(area);
  return area.value_or(0) % Commons::kAreas;
}

// Longer than a call that fails.
void wait_for(const std::atomic<int>& count, int least) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(15));
  while (count < least && !deadline.expired()) std::this_thread::yield();
}

TEST(BoardParts, HaveTheirOwnBoardAndGiveItBack) {
  on_ranks(4, Config{}, [](Rank me) {
    open(me);
    // More parts than a board can tell of; the last ones do without, and are as right.
    for (int round = 0; round < 300; ++round) {
      const std::vector<int> ranks =
          me.rank % 2 == 0 ? std::vector<int>{2, 0} : std::vector<int>{1, 3};
      const auto part = me.communicator.split(ranks, "part");
      for (int repeat = 0; repeat < 3; ++repeat) {
        Ints data{me.rank + 10 * round};
        part->run(all_reduce(data));
        ASSERT_EQ(data[0], (me.rank % 2 == 0 ? 2 : 4) + 20 * round);
      }
      EXPECT_EQ(part->board() != nullptr, static_cast<size_t>(round) < BoardArea::kChildren);
    }
    me.communicator.run({.collective = Collective::kBarrier});
    // Areas were used again: far fewer than parts were taken.
    EXPECT_LT(take_piece(me), 40u);
  });
}

TEST(BoardAreas, APartThatFindsNoneLeavesThoseOfOthersAlone) {
  on_ranks(2, Config{}, [](Rank me) {
    open(me);
    const auto parent = group_of_all(me, "parent");
    parent->run({.collective = Collective::kBarrier});
    Shelf& areas = me.runtime.mesh().commons()->areas();
    size_t taken = 0;
    while (areas.take()) ++taken;
    EXPECT_EQ(taken, Commons::kAreas - 2);
    // The first area is the world's.
    std::array<std::byte, Commons::kAreaHeadBytes> before, after;
    std::memcpy(before.data(), areas.data(0), before.size());
    const auto part = parent->split(std::vector<int>{1, 0}, "part");
    std::memcpy(after.data(), areas.data(0), after.size());
    EXPECT_TRUE(before == after) << "the first area was written";
    const auto part_of_it = part->split(std::vector<int>{0, 1}, "part of the part");
    for (const auto& group : {parent, part, part_of_it}) {
      Ints data{me.rank + 1};
      group->run(all_reduce(data));
      EXPECT_EQ(data, Ints{3});
    }
    EXPECT_EQ(part->board()->open(), Board::State::kClosed);
    EXPECT_EQ(part_of_it->board()->open(), Board::State::kClosed);
    std::memcpy(after.data(), areas.data(0), after.size());
    EXPECT_TRUE(before == after) << "the first area was written";
  });
}

TEST(BoardAreas, GroupsThatNeverMakeACallGiveTheirsBack) {
  on_ranks(2, Config{}, [](Rank me) {
    open(me);
    for (int i = 0; i < 5'000; ++i) {
      const auto group = group_of_all(me, "idle");
      ASSERT_NE(group->board(), nullptr) << "group " << i;
    }
    EXPECT_LT(take_piece(me), 10u);
  });
}

TEST(BoardParts, OpenAlsoWhereARankOutsideHasNothingLeftOfTheParent) {
  std::atomic<int> gone{0}, over{0};
  on_ranks(3, Config{}, [&](Rank me) {
    open(me);
    auto parent = group_of_all(me, "parent");
    const bool member = me.rank != 2;
    const auto part = parent->split(member ? std::vector<int>{0, 1} : std::vector<int>{}, "part");
    parent.reset();
    if (member) {
      wait_for(gone, 1);
      part->run({.collective = Collective::kBarrier, .timeout = std::chrono::seconds(5)});
      EXPECT_TRUE(part->board()->is_open());
      ++over;
    } else {
      EXPECT_EQ(take_piece(me), 1u) << "not the area of the parent";
      ++gone;
      wait_for(over, 2);
    }
  });
}

TEST(BoardParts, OpenAlikeWhereARankOutsideUsesItsAreaForAnotherBoard) {
  std::atomic<int> opened{0}, gone{0}, over{0};
  on_ranks(3, Config{}, [&](Rank me) {
    open(me);
    auto parent = group_of_all(me, "parent");
    const bool member = me.rank != 2;
    const auto part = parent->split(member ? std::vector<int>{1, 0} : std::vector<int>{}, "part");
    const auto part_of_it = member ? part->split(std::vector<int>{0, 1}, "of it") : nullptr;
    // Rank 1 looks before rank 2 ends the parent, rank 0 looks afterwards.
    if (me.rank == 1) {
      while (part->board()->open() == Board::State::kOpening ||
             part_of_it->board()->open() == Board::State::kOpening)
        std::this_thread::yield();
      ++opened;
    }
    if (!member) {
      wait_for(opened, 1);
      parent.reset();
      const auto other = me.communicator.split(std::vector<int>{2}, "other");
      EXPECT_EQ(take_piece(me), 2u) << "the area of the parent is not taken";
      ++gone;
      wait_for(over, 2);
      return;
    }
    me.communicator.split(std::vector<int>{me.rank}, "another");
    wait_for(gone, 1);
    for (const auto& group : {part, part_of_it}) {
      group->run({.collective = Collective::kBarrier, .timeout = std::chrono::seconds(5)});
      EXPECT_TRUE(group->board()->is_open());
    }
    ++over;
  });
}

// Rank 1 is the root of a call that goes by messages, so it may be through before rank 0 begins.
TEST(BoardParts, ThatAnotherMemberHasEndedLeaveTheCallToMessages) {
  std::atomic<int> gone{0}, over{0};
  Config config;
  config.algo = ForcedAlgorithms::parse("broadcast:binomial");
  on_ranks(2, config, [&](Rank me) {
    open(me);
    Ints data{me.rank};
    me.communicator.run(broadcast(data, 0));  // connects the two
    auto parent = group_of_all(me, "parent");
    auto part = parent->split(std::vector<int>{0, 1}, "part");
    parent.reset();
    data = {me.rank};
    Call call = broadcast(data, 1);
    call.timeout = std::chrono::seconds(5);
    if (me.rank == 1) {
      part->run(std::move(call));
      part.reset();
      EXPECT_EQ(take_piece(me), 1u) << "not the area of the parent";
      ++gone;
      wait_for(over, 1);
    } else {
      wait_for(gone, 1);
      part->run(std::move(call));
      EXPECT_EQ(data, Ints{1});
      ++over;
    }
  });
}

}  // namespace
}  // namespace hccl_like
