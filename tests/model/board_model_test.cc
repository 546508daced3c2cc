// The board (collectives/board/board.h) on real wires between ranks of one host, in every
// execution: what a rank shows is complete when others see it, is not written over while they need
// it, and wakes whoever sleeps for want of it.
#include <gtest/gtest.h>

#include "collectives/board/board.h"
#include "core/machine/fence.h"
#include "tests/model/modelled_board.h"
#include "tests/model/modelled_std.h"
#include "tests/model/verdict.h"

namespace hccl_like::model {
namespace {

struct Job : BoardRanks {
  using BoardRanks::BoardRanks;

  // A small call as BoardCall makes it: shows this rank's line, reads those of `from`, and wakes
  // others before it waits for them or when it has found them all, as others_are_there() does.
  void call(size_t self, uint32_t number, const std::vector<size_t>& from) {
    BoardRank& rank = ranks[self];
    Board& board = *rank.board;
    uint64_t place = uint64_t{number} << 8;
    rank.wait(place, [&] { return board.writable(number); });
    show(self, number);
    bool told = false;
    const auto tell = [&] {
      if (tells && !std::exchange(told, true)) board.ring();
    };
    for (const size_t peer : from) {
      const auto there = [&] { return board.call_slot(static_cast<int>(peer), number) != nullptr; };
      if (there()) continue;
      tell();
      rank.wait(++place, there);
    }
    tell();
    for (const size_t peer : from) {
      board.note_done(static_cast<int>(peer), *board.call_slot(static_cast<int>(peer), number));
      read(peer, number);
    }
    board.done(number);
  }
  void show(size_t self, uint32_t number) {
    Board& board = *ranks[self].board;
    payloads[self][number % BoardArea::kCallSlots].write();
    *board.payload(number, 1) = static_cast<std::byte>(number);
    board.show(number, number, 1);
  }
  void read(size_t peer, uint32_t number) {
    payloads[peer][number % BoardArea::kCallSlots].read();
    const std::byte there = *ranks[peer].board->payload(static_cast<int>(peer), number, 1);
    check(there == static_cast<std::byte>(number), "the payload of another call");
  }

  bool tells = true;
  std::array<std::array<Plain, BoardArea::kCallSlots>, 3>
      payloads;  // stand for what is in the lines
};

using Needs = std::vector<std::vector<size_t>>;  // by rank: whose lines it reads

template <class Scenario>
Verdict explore(size_t ranks, const Scenario& scenario, Flaw flaw = {}) {
  return explore_job<Job>(ranks, scenario, flaw);
}

Verdict calls(uint32_t count, const Needs& needs, Flaw flaw = {}) {
  const auto scenario = [&](Explorer& explorer, const std::shared_ptr<Job>& job) {
    for (size_t i = 0; i < needs.size(); ++i)
      explorer.thread("rank " + std::to_string(i), [=, &needs] {
        for (uint32_t number = 0; number < count; ++number) job->call(i, number, needs[i]);
      });
  };
  return explore(needs.size(), scenario, flaw);
}

// A rank whose data goes by messages has filled all its lines and goes on, into the half that the
// other, who comes only now, gives free first.
Verdict run_ahead(Flaw flaw = {}) {
  constexpr uint32_t kCallSlots = BoardArea::kCallSlots, kHalf = kCallSlots / 2;
  const auto scenario = [&](Explorer& explorer, const std::shared_ptr<Job>& job) {
    for (uint32_t number = 0; number < kCallSlots; ++number) job->call(0, number, {});
    explorer.thread("rank 0", [=] {
      for (uint32_t number = kCallSlots; number < kCallSlots + kHalf; ++number)
        job->call(0, number, {});
    });
    explorer.thread("rank 1", [=] {
      for (uint32_t number = 0; number < kHalf; ++number) job->call(1, number, {0});
    });
  };
  return explore(2, scenario, flaw);
}

// Of several calls at once a rank is done with the later ones first, and its lines tell that it is
// not done with the first. Where `tells_later`, one tells of the last call that it is done with
// instead.
Verdict at_once(bool tells_later = false) {
  constexpr uint32_t kCallSlots = BoardArea::kCallSlots;
  const auto scenario = [=](Explorer& explorer, const std::shared_ptr<Job>& job) {
    Board& first = *job->ranks[0].board;
    Board& second = *job->ranks[1].board;
    for (uint32_t number = 0; number < kCallSlots; ++number) {
      job->show(0, number);
      job->show(1, number);
      BoardArea::CallSlot told;
      told.done = tells_later ? number - 1 : second.call_slot(1, number)->done;
      first.note_done(1, told);
      first.done(number);
      if (number > 0) second.done(number);
    }
    explorer.thread("rank 0", [=] { job->call(0, kCallSlots, {}); });
    explorer.thread("rank 1", [=, &second] {
      job->read(0, 0);
      second.done(0);
    });
  };
  return explore(2, scenario);
}

TEST(BoardModel, EveryRankSeesTheOthersLines) {
  EXPECT_TRUE(holds(calls(1, {{1}, {0}}), 200));
  EXPECT_TRUE(holds(calls(2, {{1}, {0}}), 3'000));
}

TEST(BoardModel, ARankThatNeedsSeveralSleepsOnAllOfThem) {
  EXPECT_TRUE(holds(calls(1, {{1, 2}, {}, {}}), 15'000, kMany));
}

TEST(BoardModel, WhoeverWaitsForNobodyRunsAheadUntilItsLinesAreNeeded) {
  EXPECT_TRUE(holds(run_ahead(), 100));
}

TEST(BoardModel, ALineStaysWhileACallThatCameFirstGoesOn) {
  EXPECT_TRUE(holds(at_once(), 10));
  EXPECT_TRUE(fails_with(at_once(/*tells_later=*/true), kRace));
}

TEST(BoardModel, WithoutTheFenceOfEitherSideAWakeUpIsLost) {
  const Needs one_way{{}, {0}};
  EXPECT_TRUE(fails_with(calls(1, one_way, {.thread = "rank 0"}), kLost)) << "who shows";
  EXPECT_TRUE(fails_with(calls(1, one_way, {.thread = "rank 1"}), kLost)) << "who sleeps";
}

TEST(BoardModel, WhoeverDoesNotTellLeavesOthersAsleep) {
  const auto scenario = [](Explorer& explorer, const std::shared_ptr<Job>& job) {
    job->tells = false;
    explorer.thread("rank 0", [=] { job->call(0, 0, {}); });
    explorer.thread("rank 1", [=] { job->call(1, 0, {0}); });
  };
  EXPECT_TRUE(fails_with(explore(2, scenario), kLost));
}

TEST(BoardModel, StampsMustBeReleasedAndAcquired) {
  for (const char* function : {"Board::show", "Board::call_slot"})
    EXPECT_TRUE(fails_with(calls(1, {{}, {0}}, {.relaxed_inside = function}), kRace)) << function;
  for (const char* function : {"Board::done", "Board::is_done"})
    EXPECT_TRUE(fails_with(run_ahead({.relaxed_inside = function}), kRace)) << function;
}

TEST(BoardModel, WhoeverDoesNotLookAtTheBoardAgainMayNeverWake) {
  const auto scenario = [](Explorer& explorer, const std::shared_ptr<Job>& job) {
    job->ranks[1].looks_again = false;
    explorer.thread("rank 0", [=] { job->call(0, 0, {}); });
    explorer.thread("rank 1", [=] { job->call(1, 0, {0}); });
  };
  EXPECT_TRUE(fails_with(explore(2, scenario), kLost));
}

TEST(BoardModel, WhatWasTakenBackIsSeenByNobodyWhoKnowsOfTheFailure) {
  bool seen = false, missed = false;
  const auto scenario = [&](Explorer& explorer, const std::shared_ptr<Job>& job) {
    const auto told = std::make_shared<Atomic<uint64_t>>();  // as a message of the failure would
    explorer.thread("rank 0", [=] {
      job->show(0, 0);
      job->ranks[0].board->withdraw(0);
      told->store(1, std::memory_order_release);
    });
    explorer.thread("rank 1", [=, &seen, &missed] {
      const bool knows = told->load(std::memory_order_acquire) == 1;
      const bool there = job->ranks[1].board->call_slot(0, 0) != nullptr;
      if (there) job->read(0, 0);
      check(!(knows && there), "a call succeeds whose failure is known");
      (there ? seen : missed) = true;
    });
  };
  EXPECT_TRUE(holds(explore(2, scenario), 5));
  EXPECT_TRUE(seen && missed) << "both happen";
}

// A rank takes a call back and uses the staging buffer of the call for another one, while the other
// rank reads it.
Verdict reads_late(bool asks_line, Flaw flaw = {}) {
  const auto scenario = [=](Explorer& explorer, const std::shared_ptr<Job>& job) {
    const auto staging_buffer = std::make_shared<Atomic<uint64_t>>(1);
    explorer.thread("rank 0", [=] {
      job->show(0, 0);
      job->ranks[0].board->withdraw(0);
      full_fence();
      staging_buffer->store(2, std::memory_order_relaxed);
    });
    explorer.thread("rank 1", [=] {
      const Board& board = *job->ranks[1].board;
      if (board.call_slot(0, 0) == nullptr) return;
      const uint64_t read = staging_buffer->load(std::memory_order_relaxed);
      const bool valid = asks_line ? board.call_slot(0, 0) != nullptr : board.still_shows(0, 0);
      check(!valid || read == 1, "what another call put there is believed");
    });
  };
  return explore(2, scenario, flaw);
}

TEST(BoardModel, WhatIsReadOfACallThatWasTakenBackIsNotBelieved) {
  EXPECT_TRUE(holds(reads_late(/*asks_line=*/false), 10));
  EXPECT_TRUE(fails_with(reads_late(/*asks_line=*/true), "what another call"));
  for (const char* rank : {"rank 0", "rank 1"})
    EXPECT_TRUE(fails_with(reads_late(/*asks_line=*/false, {.thread = rank}), "what another call"))
        << "without the fence of " << rank;
}

}  // namespace
}  // namespace hccl_like::model
