// Tests a communicator with a board: small calls of every kind, several calls at once, parts,
// mistakes, endings.
#include "collectives/board/board.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "collectives/testing/board_calls.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;
using namespace testing;

int64_t value(int from, int to, size_t i) {
  return from * 1000 + to * 100 + static_cast<int64_t>(i);
}

TEST(BoardLines, TellWhatTheirRankIsDoneWith) {
  on_ranks(2, Config{}, [](Rank me) {
    open(me);
    constexpr uint32_t kCalls = 20;
    for (uint32_t call = 1; call <= kCalls; ++call)
      me.communicator.run({.collective = Collective::kBarrier});
    const Board::CallSlot* const line = me.communicator.board()->call_slot(1 - me.rank, kCalls);
    ASSERT_NE(line, nullptr);
    EXPECT_EQ(static_cast<uint32_t>(line->done), kCalls - 1);
  });
}

class BoardOfRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, BoardOfRanks, ::testing::Values(2, 3, 4),
                         ::testing::PrintToStringParamName());

// Around what fits into a line, and around what fits onto the board.
const std::vector<size_t> kCounts{0, 1, 11, 12, 13, 50, 190, 191, 192, 193, 200};

TEST_P(BoardOfRanks, RunsEveryCollectiveExactly) {
  on_ranks(GetParam(), Config{}, [](Rank me) {
    open(me);
    const int n = me.size, r = me.rank;
    for (const size_t count : kCounts) {
      const auto all = count * static_cast<size_t>(n);
      Ints in(all), out(all, -1), mine(count, -1);
      for (int to = 0; to < n; ++to)
        for (size_t i = 0; i < count; ++i)
          in[static_cast<size_t>(to) * count + i] = value(r, to, i);
      me.communicator.run({.collective = Collective::kAllToAll,
                           .type = DataType::kInt64,
                           .input = chunks(in, n),
                           .output = chunks(out, n)});
      for (int from = 0; from < n; ++from)
        for (size_t i = 0; i < count; ++i)
          ASSERT_EQ(out[static_cast<size_t>(from) * count + i], value(from, r, i));

      me.communicator.run({.collective = Collective::kReduceScatter,
                           .type = DataType::kInt64,
                           .input = chunks(in, n),
                           .output = own(mine, r)});
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(mine[i], n * (n - 1) / 2 * 1000 + n * (r * 100 + static_cast<int64_t>(i)))
            << count;

      for (size_t i = 0; i < count; ++i) mine[i] = value(r, 0, i);
      me.communicator.run({.collective = Collective::kAllGather,
                           .type = DataType::kInt64,
                           .input = own(mine, r),
                           .output = chunks(out, n)});
      for (int from = 0; from < n; ++from)
        for (size_t i = 0; i < count; ++i)
          ASSERT_EQ(out[static_cast<size_t>(from) * count + i], value(from, 0, i));

      for (int root = 0; root < n; ++root) {
        Ints gathered(all, -1);
        Call gather{.collective = Collective::kGather,
                    .type = DataType::kInt64,
                    .root = root,
                    .input = own(mine, r)};
        if (r == root) gather.output = chunks(gathered, n);
        me.communicator.run(std::move(gather));
        ASSERT_EQ(gathered, r == root ? out : Ints(all, -1));

        Ints part(count, -1);
        Call scatter{.collective = Collective::kScatter,
                     .type = DataType::kInt64,
                     .root = root,
                     .output = own(part, r)};
        if (r == root) scatter.input = chunks(in, n);
        me.communicator.run(std::move(scatter));
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(part[i], value(root, r, i));

        Ints reduced(count, -1);
        Call reduce{.collective = Collective::kReduce,
                    .type = DataType::kInt64,
                    .op = ReduceOp::kMax,
                    .root = root,
                    .input = whole(mine)};
        if (r == root) reduce.output = whole(reduced);
        me.communicator.run(std::move(reduce));
        for (size_t i = 0; i < count; ++i)
          ASSERT_EQ(reduced[i], r == root ? value(n - 1, 0, i) : -1);

        Ints told(count, -1);
        if (r == root) told = mine;
        me.communicator.run(broadcast(told, root));
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(told[i], value(root, 0, i));
      }
    }
  });
}

// Every wait sleeps at once, so a wake-up that gets lost is a hang.
TEST_P(BoardOfRanks, WakesRanksThatSleep) {
  Config config;
  config.spins = 0;
  config.yields = 0;
  on_ranks(GetParam(), config, [](Rank me) {
    open(me);
    for (int64_t round = 0; round < 500; ++round) {
      Ints data{round + me.rank};
      me.communicator.run(all_reduce(data));
      ASSERT_EQ(data[0], round * me.size + me.size * (me.size - 1) / 2);
      data = {me.rank == 1 ? round : -1};
      me.communicator.run(broadcast(data, 1));
      ASSERT_EQ(data[0], round);
    }
  });
}

TEST(Board, ARootWaitsForAllSoThatASecondRootIsFound) {
  on_ranks(3, Config{}, [](Rank me) {
    open(me);
    Ints data{me.rank};
    me.communicator.run(broadcast(data, 1));
    EXPECT_EQ(data, Ints{1});
    std::string said;
    try {
      me.communicator.run(broadcast(data, me.rank == 2 ? 2 : 0));
    } catch (const Exception& error) {
      said = error.what();
    }
    EXPECT_NE(said.find("with root 2"), std::string::npos) << said;
    EXPECT_NE(said.find("with root 0"), std::string::npos) << said;
  });
}

TEST(Board, CallsFinishInAnyOrderAmongLargeOnes) {
  on_ranks(3, Config{}, [](Rank me) {
    open(me);
    constexpr size_t kCalls = 30;
    std::vector<Ints> data;
    std::vector<std::shared_ptr<Operation>> operations;
    for (size_t i = 0; i < kCalls; ++i) {
      data.emplace_back(i % 3 == 0 ? 40'001 : i + 1, static_cast<int64_t>(i) + me.rank);
      operations.push_back(me.communicator.prepare(all_reduce(data.back())));
    }
    me.communicator.launch(operations, false);
    for (size_t i = 0; i < kCalls; ++i) {
      ASSERT_TRUE(me.runtime.engine().wait(*operations[i], Deadline::never()));
      ASSERT_EQ(operations[i]->error(), nullptr);
      ASSERT_EQ(data[i], Ints(data[i].size(), 3 * static_cast<int64_t>(i) + 3));
    }
  });
}

TEST(Board, TellsASmallCallFromALargeOne) {
  for (const size_t other : {size_t{2}, size_t{100'000}}) {
    on_ranks(2, Config{}, [&](Rank me) {
      open(me);
      Ints data(me.rank == 0 ? 1 : other, 7);
      try {
        me.communicator.run(all_reduce(data));
        ADD_FAILURE() << "sizes of 1 and " << other << " went together";
      } catch (const Exception& exception) {
        EXPECT_NE(
            exception.error().message.find(
                "call #2, all_reduce of int64 (sum): rank 0 passed 1 element, rank 1 passed " +
                std::to_string(other) + " elements."),
            std::string::npos)
            << exception.error().message;
      }
      EXPECT_EQ(data, Ints(data.size(), 7)) << "the buffer was touched";
    });
  }
}

TEST(Board, ARankThatLeavesIsMissedByThoseWhoWaitForIt) {
  on_ranks(3, Config{}, [](Rank me) {
    open(me);
    if (me.rank == 2) return;
    Ints data{1};
    Call call = all_reduce(data);
    call.timeout = std::chrono::seconds(15);
    try {
      me.communicator.run(std::move(call));
      ADD_FAILURE() << "nobody missed rank 2";
    } catch (const Exception& exception) {
      EXPECT_NE(exception.error().message.find("all_reduce #2"), std::string::npos)
          << exception.error().message;
      EXPECT_NE(exception.error().code, ErrorCode::kTimeout) << exception.error().message;
    }
  });
}

TEST(Board, ARankThatComesTooLateDoesNotSucceed) {
  std::atomic<bool> gave_up{false};
  on_ranks(2, Config{}, [&](Rank me) {
    open(me);
    Ints data{1};
    Call call = all_reduce(data);
    if (me.rank == 0) {
      call.timeout = milliseconds(50);
      EXPECT_THROW(me.communicator.run(std::move(call)), Exception);
      gave_up = true;
    } else {
      while (!gave_up) std::this_thread::yield();
      EXPECT_THROW(me.communicator.run(std::move(call)), Exception);
    }
    EXPECT_EQ(data[0], 1);
  });
}

TEST(Board, AnAbortEndsAWait) {
  on_ranks(2, Config{}, [](Rank me) {
    open(me);
    if (me.rank == 1) {
      me.communicator.abort("enough");
      return;
    }
    Ints data{1};
    EXPECT_THROW(me.communicator.run(all_reduce(data)), Exception);
    EXPECT_EQ(me.communicator.failure()->code, ErrorCode::kAborted);
  });
}

TEST(Board, IsNotUsedWhereTheUserSaysSo) {
  Config config;
  config.board = false;
  on_ranks(2, config, [](Rank me) {
    EXPECT_EQ(me.communicator.board(), nullptr);
    Ints data{me.rank + 1};
    me.communicator.run(all_reduce(data));
    EXPECT_EQ(data[0], 3);
  });
}

}  // namespace
}  // namespace hccl_like
