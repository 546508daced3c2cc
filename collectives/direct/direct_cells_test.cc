// Two ranks that exchange private memory through cells: every collective that does, exactly, and no cell is lost.
#include <gtest/gtest.h>
#include <sched.h>

#include <numeric>
#include <thread>
#include <vector>

#include "collectives/direct/direct_testing.h"
#include "collectives/testing.h"
#include "core/deadline.h"
#include "transport/pair_cells.h"

namespace hccl_like {
namespace {

using namespace testing;

// Numbers of a chunk: less than a line, about a cell, several cells, more than both sides have.
const std::vector<size_t> kChunks{399, 16'384, 32'768, 32'769, 150'001, 400'007};

Call call_of(Collective collective, int rank, Numbers& in, Numbers& out, size_t count) {
  const bool gives_chunks =
      collective == Collective::kAllToAll || collective == Collective::kReduceScatter;
  const bool takes_chunks =
      collective == Collective::kAllToAll || collective == Collective::kAllGather;
  const auto layout = [&](Numbers& numbers, bool chunks) {
    if (chunks) return Layout::even(numbers.part(0, 2 * count), 2, kInt);
    const Region region = numbers.part(0, count);
    if (collective == Collective::kAllReduce) return Layout::even(region, 1, kInt);
    return Layout::single({&region, 1}, static_cast<size_t>(rank), kInt);
  };
  return {.collective = collective,
          .type = DataType::kInt32,
          .input = layout(in, gives_chunks),
          .output = layout(out, takes_chunks)};
}

void expect_result(Collective collective, int rank, Numbers& out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const auto given = [&](int from, int to) { return value(from, to, i); };
    switch (collective) {
      case Collective::kAllReduce:
        ASSERT_EQ(out[i], given(0, 0) + given(1, 0)) << i << " of " << count;
        break;
      case Collective::kReduceScatter:
        ASSERT_EQ(out[i], given(0, rank) + given(1, rank)) << i << " of " << count;
        break;
      default: {
        const int to = collective == Collective::kAllToAll ? rank : 0;
        ASSERT_EQ(out[i], given(0, to)) << i << " of " << count;
        ASSERT_EQ(out[count + i], given(1, to)) << i << " of " << count;
      }
    }
  }
}

void run_all(const Rank& me, Sharing sharing) {
  for (const size_t count : kChunks)
    for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter,
                                        Collective::kAllGather, Collective::kAllToAll}) {
      Numbers in(2 * count, 0), out(2 * count, -1);
      for (int to = 0; to < 2; ++to)
        for (size_t i = 0; i < count; ++i)
          in[static_cast<size_t>(to) * count + i] = value(me.rank, to, i);
      Call call = call_of(collective, me.rank, in, out, count);
      share(call, sharing, me.rank, in.region(), out.region());
      me.communicator.run(std::move(call));
      expect_result(collective, me.rank, out, count);
      // What goes one way leaves the cells where they are.
      Numbers all(count, me.rank == 0 ? 7 : 0);
      me.communicator.run({.collective = Collective::kBroadcast,
                           .type = DataType::kInt32,
                           .input = Layout::even(all.region(), 1, kInt),
                           .output = Layout::even(all.region(), 1, kInt)});
      ASSERT_EQ(all[count - 1], 7);
    }
}

// Exchanges until the ranks have cells, of which each must see the other's.
PairCells* cells_of(const Rank& me) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  const Link* const link = me.communicator.board()->link(1 - me.rank);
  for (Numbers in(1, 0), out(2, 0);;) {
    Numbers mine(1'000, 1), both(2'000, 0);
    me.communicator.run(call_of(Collective::kAllGather, me.rank, mine, both, 1'000));
    in[0] = link->pair_cells() != nullptr || deadline.expired();
    me.communicator.run(call_of(Collective::kAllGather, me.rank, in, out, 1));
    if (out[0] != 0 && out[1] != 0) return link->pair_cells();
  }
}

class DirectCells : public ::testing::TestWithParam<Sharing> {};
INSTANTIATE_TEST_SUITE_P(, DirectCells,
                         ::testing::Values(Sharing::kNobody, Sharing::kInputs, Sharing::kOutputs,
                                           Sharing::kEverybody, Sharing::kEvenRanks));

TEST_P(DirectCells, CarryEveryExchangeExactlyAndNoneIsLost) {
  const Sharing sharing = GetParam();
  on_ranks(2, Config{}, [&](Rank me) {
    me.communicator.run({.collective = Collective::kBarrier});  // the board is open
    PairCells* const cells = cells_of(me);
    ASSERT_NE(cells, nullptr) << "ranks that exchange connect";
    for (int round = 0; round < 3; ++round) run_all(me, sharing);
    me.communicator.run({.collective = Collective::kBarrier});
    int32_t held = 0;
    while (cells->take()) ++held;
    Numbers mine(1, held), sum(1, 0);
    me.communicator.run({.collective = Collective::kAllReduce,
                         .type = DataType::kInt32,
                         .input = Layout::even(mine.region(), 1, kInt),
                         .output = Layout::even(sum.region(), 1, kInt)});
    EXPECT_EQ(sum[0], static_cast<int32_t>(PairCells::kCount));
  });
}

// What was put before all knew that it goes another way is given back while its lane still serves this call, not the next one.
TEST(DirectCellsOfCallsInARow, ComeBackInTheirOwnCall) {
  on_ranks(2, Config{}, [&](Rank me) {
    me.communicator.run({.collective = Collective::kBarrier});
    ASSERT_NE(cells_of(me), nullptr);
    constexpr size_t kCount = 9'000;
    Numbers in(2 * kCount, 0), out(2 * kCount, 0);
    for (int32_t round = 0; round < 400; ++round)
      for (const Sharing sharing : {Sharing::kOutputs, Sharing::kNobody}) {
        const int32_t number = 4 * round + 2 * static_cast<int32_t>(sharing == Sharing::kNobody);
        for (size_t i = 0; i < kCount; ++i) in[i] = number + me.rank;
        Call call = call_of(Collective::kAllGather, me.rank, in, out, kCount);
        share(call, sharing, me.rank, in.region(), out.region());
        me.communicator.run(std::move(call));
        for (size_t i = 0; i < 2 * kCount; ++i)
          ASSERT_EQ(out[i], number + static_cast<int32_t>(i / kCount)) << "round " << round;
      }
  });
}

// Where ranks take turns at a core another thread of the engine begins the connection that a rank would like, and goes on with it.
TEST(DirectCellsOfRanksOnOneCore, ComeSoon) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);  // and of all threads that this one makes
  for (int time = 0; time < 10; ++time)
    on_ranks(2, Config{}, [&](Rank me) {
      me.communicator.run({.collective = Collective::kBarrier});
      EXPECT_NE(cells_of(me), nullptr);
    });
  EXPECT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
}

// Without any cell left all of it goes through lanes.
TEST(DirectWithoutCells, LanesCarryTheSame) {
  on_ranks(2, Config{}, [&](Rank me) {
    me.communicator.run({.collective = Collective::kBarrier});
    PairCells* const cells = cells_of(me);
    ASSERT_NE(cells, nullptr);
    while (cells->take()) {
    }
    run_all(me, Sharing::kNobody);
    EXPECT_TRUE(cells->gave_all());
  });
}

}  // namespace
}  // namespace hccl_like
