// Large calls of one host: every collective, exactly, whoever can map whose memory; mistakes and
// endings.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/same_host/large_call.h"
#include "collectives/testing/large_calls.h"
#include "collectives/testing/on_ranks.h"

namespace hccl_like {
namespace {

using namespace testing;
using std::chrono::milliseconds;

class Direct : public ::testing::TestWithParam<DirectCase> {};
INSTANTIATE_TEST_SUITE_P(, Direct, all_settings());

// Numbers of one rank: just above the board; such that, on few cores, ranks with mapped memory
// request another way to sum them than those without; about a slice of the staging buffers, several
// slices, more slices than slots.
const std::vector<size_t> kCounts{399, 1'000, 5'003, 16'384, 32'771, 100'003, 400'009};

// In place, in memory that all peers may map.
Call shared_all_reduce(const Rank& me, Numbers& data) {
  Call call{.collective = Collective::kAllReduce,
            .type = DataType::kInt32,
            .input = Layout::even(data.region(), 1, kInt),
            .output = Layout::even(data.region(), 1, kInt)};
  share(call, Sharing::kEverybody, me.rank, data.region(), data.region());
  return call;
}

TEST_P(Direct, ReducesExactly) {
  const auto [ranks, sharing] = GetParam();
  on_ranks(ranks, Config{}, [&](Rank me) {
    for (const size_t count : kCounts) {
      for (const bool in_place : {true, false}) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax}) {
          Numbers in(count, 0), out(count, -1);
          for (size_t i = 0; i < count; ++i) in[i] = value(me.rank, 0, i);
          Numbers& result = in_place ? in : out;
          Call call{.collective = Collective::kAllReduce,
                    .type = DataType::kInt32,
                    .op = op,
                    .input = Layout::even(in.region(), 1, kInt),
                    .output = Layout::even(result.region(), 1, kInt)};
          share(call, sharing, me.rank, in.region(), result.region());
          me.communicator.run(std::move(call));
          for (size_t i = 0; i < count; ++i) {
            int32_t expected = sum_to(0, me.size, i);
            if (op == ReduceOp::kAvg) expected /= me.size;
            if (op == ReduceOp::kMax) expected = value(me.size - 1, 0, i);
            ASSERT_EQ(result[i], expected) << i << " of " << count;
          }
        }
      }
      for (int root = 0; root < me.size; ++root) {
        Numbers in(count, 0), out(count, -1);
        for (size_t i = 0; i < count; ++i) in[i] = value(me.rank, 0, i);
        Call call{.collective = Collective::kReduce,
                  .type = DataType::kInt32,
                  .root = root,
                  .input = Layout::even(in.region(), 1, kInt),
                  .output = Layout::even(out.region(), 1, kInt)};
        share(call, sharing, me.rank, in.region(), out.region());
        me.communicator.run(std::move(call));
        if (me.rank == root) {
          for (size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], sum_to(0, me.size, i));
        }
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(in[i], value(me.rank, 0, i));
      }
    }
  });
}

// Without mapped memory: ranks that know of another number of cores, as containers may, do not sum
// in two ways.
TEST(DirectWishes, ToSumAllCountIfAllHaveThem) {
  constexpr size_t kCount = 5'003;
  on_ranks(4, Config{}, [&](Rank me) {
    me.communicator.run({.collective = Collective::kBarrier});  // the board is open
    Board& board = *me.communicator.board();
    ThreadPool thread_pool;
    KnownMemory known;
    for (uint32_t number = 1; number < 4; ++number) {
      Numbers data(kCount, 0);
      for (size_t i = 0; i < kCount; ++i) data[i] = value(me.rank, 0, i);
      const Layout layout = Layout::even(data.region(), 1, kInt);
      const SteppedCall stepped{.call = {.collective = Collective::kAllReduce,
                                         .type = DataType::kInt32,
                                         .input = layout,
                                         .output = layout},
                                .resources = {.cores = number == 1 || me.rank == 2 ? 1 : 4,
                                              .known_memory = &known,
                                              .thread_pool = &thread_pool}};
      const BoardCall call = stepped.on(board, number);
      LargeCall run;
      ASSERT_TRUE(board.writable(number) && run.begin(call));
      run.show();
      for (int rank = 0; rank < me.size; ++rank)
        while (board.call_slot(rank, number) == nullptr) std::this_thread::yield();
      run.meet();
      while (!run.finished())
        if (!run.advance()) std::this_thread::yield();
      board.done(number);
      run.end();
      for (size_t i = 0; i < kCount; ++i)
        ASSERT_EQ(data[i], sum_to(0, 4, i)) << i << ", " << number;
    }
  });
}

TEST_P(Direct, GathersAndScattersExactly) {
  const auto [ranks, sharing] = GetParam();
  on_ranks(ranks, Config{}, [&](Rank me) {
    const int n = me.size, r = me.rank;
    const auto chunks = static_cast<size_t>(n), own = static_cast<size_t>(r);
    for (const size_t count : kCounts) {
      const auto single = [&](Region region) { return Layout::single({&region, 1}, own, kInt); };
      Numbers mine(count, 0), all(count * chunks, 0), out(count * chunks, -1), part(count, -1);
      for (size_t i = 0; i < count; ++i) mine[i] = value(r, 0, i);
      for (int to = 0; to < n; ++to)
        for (size_t i = 0; i < count; ++i)
          all[static_cast<size_t>(to) * count + i] = value(r, to, i);

      Call to_all{.collective = Collective::kAllToAll,
                  .type = DataType::kInt32,
                  .input = Layout::even(all.region(), chunks, kInt),
                  .output = Layout::even(out.region(), chunks, kInt)};
      share(to_all, sharing, r, all.region(), out.region());
      me.communicator.run(std::move(to_all));
      for (int from = 0; from < n; ++from)
        for (size_t i = 0; i < count; ++i)
          ASSERT_EQ(out[static_cast<size_t>(from) * count + i], value(from, r, i)) << count;

      Call scattered{.collective = Collective::kReduceScatter,
                     .type = DataType::kInt32,
                     .input = Layout::even(all.region(), chunks, kInt),
                     .output = single(part.region())};
      share(scattered, sharing, r, all.region(), part.region());
      me.communicator.run(std::move(scattered));
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(part[i], sum_to(r, n, i)) << count;

      Call gathered{.collective = Collective::kAllGather,
                    .type = DataType::kInt32,
                    .input = single(mine.region()),
                    .output = Layout::even(out.region(), chunks, kInt)};
      share(gathered, sharing, r, mine.region(), out.region());
      me.communicator.run(std::move(gathered));
      for (int from = 0; from < n; ++from)
        for (size_t i = 0; i < count; ++i)
          ASSERT_EQ(out[static_cast<size_t>(from) * count + i], value(from, 0, i)) << count;

      for (int root = 0; root < n; ++root) {
        Numbers whole(count, r == root ? 0 : -1);
        if (r == root)
          for (size_t i = 0; i < count; ++i) whole[i] = value(root, 7, i);
        Call sent{.collective = Collective::kBroadcast,
                  .type = DataType::kInt32,
                  .root = root,
                  .input = Layout::even(whole.region(), 1, kInt),
                  .output = Layout::even(whole.region(), 1, kInt)};
        share(sent, sharing, r, whole.region(), whole.region());
        me.communicator.run(std::move(sent));
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(whole[i], value(root, 7, i)) << count;

        Numbers there(count * chunks, -1), here(count, -1);
        Call gather{.collective = Collective::kGather,
                    .type = DataType::kInt32,
                    .root = root,
                    .input = single(mine.region())};
        if (r == root) gather.output = Layout::even(there.region(), chunks, kInt);
        share(gather, sharing, r, mine.region(), there.region());
        me.communicator.run(std::move(gather));
        for (size_t i = 0; i < there.size(); ++i)
          ASSERT_EQ(there[i], r == root ? out[i] : -1) << count;

        Call scatter{.collective = Collective::kScatter,
                     .type = DataType::kInt32,
                     .root = root,
                     .output = single(here.region())};
        if (r == root) scatter.input = Layout::even(all.region(), chunks, kInt);
        share(scatter, sharing, r, all.region(), here.region());
        me.communicator.run(std::move(scatter));
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(here[i], value(root, r, i)) << count;
      }
    }
  });
}

// In place, as c10d's tensors often are: every rank's own chunk is where it belongs already.
TEST_P(Direct, WorksInPlaceWhereChunksAreCollected) {
  const auto [ranks, sharing] = GetParam();
  on_ranks(ranks, Config{}, [&](Rank me) {
    const int n = me.size, r = me.rank;
    const auto chunks = static_cast<size_t>(n), own = static_cast<size_t>(r);
    for (const size_t count : {size_t{1'001}, size_t{200'003}}) {
      Numbers all(count * chunks, -1);
      const Region mine = all.part(own, count);
      for (size_t i = 0; i < count; ++i) all[own * count + i] = value(r, 0, i);
      Call gather{.collective = Collective::kAllGather,
                  .type = DataType::kInt32,
                  .input = Layout::single({&mine, 1}, own, kInt),
                  .output = Layout::even(all.region(), chunks, kInt)};
      share(gather, sharing, r, mine, all.region());
      me.communicator.run(std::move(gather));
      for (int from = 0; from < n; ++from)
        for (size_t i = 0; i < count; ++i)
          ASSERT_EQ(all[static_cast<size_t>(from) * count + i], value(from, 0, i));

      Call scatter{.collective = Collective::kReduceScatter,
                   .type = DataType::kInt32,
                   .input = Layout::even(all.region(), chunks, kInt),
                   .output = Layout::single({&mine, 1}, own, kInt)};
      share(scatter, sharing, r, all.region(), mine);
      me.communicator.run(std::move(scatter));
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(all[own * count + i], n * value(r, 0, i));
    }
  });
}

// One rank's memory cannot be mapped, though it says so: all do without.
TEST(DirectMemory, ThatCannotBeMappedGoesThroughTheLanes) {
  on_ranks(3, Config{}, [](Rank me) {
    constexpr size_t kCount = 50'001;
    Numbers data(kCount, me.rank + 1);
    Call call = shared_all_reduce(me, data);
    if (me.rank == 1) call.shared_output->handle.bytes[20] ^= 0x5a;
    me.communicator.run(std::move(call));
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(data[i], 6);
  });
}

// A range that begins beyond the mapping's end would be read and written where nothing of the
// peer's is.
TEST(DirectMemory, BeyondItsMappingIsNotTouched) {
  on_ranks(2, Config{}, [](Rank me) {
    constexpr size_t kCount = 50'001;
    Numbers data(kCount, me.rank + 1);
    Call call = shared_all_reduce(me, data);
    if (me.rank == 1) call.shared_input->offset = uint64_t{1} << 60;
    me.communicator.run(std::move(call));
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(data[i], 3);
  });
}

TEST(DirectMistakes, AreToldBeforeABufferIsTouched) {
  for (const size_t other : {size_t{50'001}, size_t{60'000}}) {
    on_ranks(2, Config{}, [&](Rank me) {
      Numbers data(me.rank == 0 ? 50'000 : other, 5);
      Call call = shared_all_reduce(me, data);
      if (other == 50'001) call.collective = Collective::kBroadcast;
      try {
        me.communicator.run(std::move(call));
        FAIL() << "two sizes went together";
      } catch (const Exception& error) {
        EXPECT_NE(std::string(error.what()).find(std::to_string(other)), std::string::npos)
            << error.what();
      }
      for (size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], 5);
    });
  }
}

TEST(DirectEndings, ATimeoutNamesTheRankThatDidNotCome) {
  on_ranks(3, Config{}, [](Rank me) {
    me.communicator.run({.collective = Collective::kBarrier});
    if (me.rank == 1) {
      // It learns from the others that the group is given up.
      Numbers data(1'000, 0);
      EXPECT_THROW(me.communicator.run({.collective = Collective::kRecv,
                                        .type = DataType::kInt32,
                                        .root = 0,
                                        .output = Layout::even(data.region(), 1, kInt)}),
                   Exception);
      return;
    }
    Numbers data(100'000, 1);
    Call call = shared_all_reduce(me, data);
    call.timeout = milliseconds(300);
    try {
      me.communicator.run(std::move(call));
      FAIL() << "a rank was missing";
    } catch (const Exception& error) {
      EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
    }
  });
}

TEST(DirectLanes, AreUsedAgain) {
  on_ranks(2, Config{}, [](Rank me) {
    Numbers data(30'000, 1);
    for (int i = 0; i < 500; ++i)
      me.communicator.run({.collective = Collective::kBroadcast,
                           .type = DataType::kInt32,
                           .root = i % 2,
                           .input = Layout::even(data.region(), 1, kInt),
                           .output = Layout::even(data.region(), 1, kInt)});
    me.communicator.run({.collective = Collective::kBarrier});
    EXPECT_LT(*me.runtime.mesh().commons()->staging_buffers().take(), 12u);
  });
}

}  // namespace
}  // namespace hccl_like
