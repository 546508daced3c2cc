// Tests failures in the engine, and the choice of the thread that drives it.
#include "collectives/engine/engine.h"

#include <gtest/gtest.h>

#include <vector>

#include "collectives/engine/communicator.h"
#include "collectives/testing/on_ranks.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::on_ranks;
using testing::Rank;
using testing::region;

Call all_reduce(std::vector<float>& data) {
  return {.collective = Collective::kAllReduce,
          .type = DataType::kFloat32,
          .input = Layout::even(region(data), 1, sizeof(float)),
          .output = Layout::even(region(data), 1, sizeof(float))};
}

Error run_and_fail(Communicator& communicator, Call call) {
  try {
    communicator.run(std::move(call));
  } catch (const Exception& exception) {
    return exception.error();
  }
  ADD_FAILURE() << "the call succeeded";
  return {};
}

TEST(Engine, ATimeoutNamesTheCallAndTheRankThatNeverCame) {
  on_ranks(3, Config{}, [](Rank me) {
    if (me.rank == 2) return;  // leaves in order, without the call
    std::vector<float> data(10, 1.0f);
    Call call = all_reduce(data);
    call.timeout = milliseconds(300);
    const Error error = run_and_fail(me.communicator, std::move(call));
    EXPECT_NE(error.code, ErrorCode::kMisuse);
    EXPECT_NE(error.message.find("all_reduce #1"), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("rank"), std::string::npos) << error.message;
  });
}

TEST(Engine, ASilentRankRunsIntoTheTimeout) {
  std::atomic<int> done{0};
  on_ranks(2, Config{}, [&](Rank me) {
    if (me.rank == 1) {
      while (done == 0) std::this_thread::yield();
      return;
    }
    std::vector<float> data(10, 1.0f);
    Call call = all_reduce(data);
    call.timeout = milliseconds(200);
    const Error error = run_and_fail(me.communicator, std::move(call));
    ++done;
    EXPECT_EQ(error.code, ErrorCode::kTimeout);
    EXPECT_NE(error.message.find("waiting for rank 1"), std::string::npos) << error.message;
    // The group is given up: the next call says the same.
    EXPECT_EQ(run_and_fail(me.communicator, all_reduce(data)), error);
  });
}

TEST(Engine, AMismatchRaisesOnBothSidesBeforeTheTimeout) {
  on_ranks(2, Config{}, [](Rank me) {
    std::vector<float> data(me.rank == 0 ? 1000 : 500, 1.0f);
    const Error error = run_and_fail(me.communicator, all_reduce(data));
    EXPECT_TRUE(error.code == ErrorCode::kMismatch || error.code == ErrorCode::kAborted) << error;
    EXPECT_NE(error.message.find("disagree"), std::string::npos) << error.message;
  });
}

TEST(Engine, DifferentCollectivesRaiseOnBothSides) {
  on_ranks(2, Config{}, [](Rank me) {
    std::vector<float> data(64, 1.0f);
    Call call = all_reduce(data);
    if (me.rank == 1) call.collective = Collective::kBroadcast;
    const Error error = run_and_fail(me.communicator, std::move(call));
    EXPECT_NE(error.message.find("broadcast"), std::string::npos) << error.message;
  });
}

TEST(Engine, AbortFromAnotherThreadEndsTheWait) {
  std::atomic<bool> told{false};
  on_ranks(2, Config{}, [&](Rank me) {
    std::vector<float> data(10, 1.0f);
    if (me.rank == 1) {
      // Learns of it from rank 0.
      Call call{.collective = Collective::kRecv,
                .type = DataType::kFloat32,
                .root = 0,
                .output = Layout::even(region(data), 1, sizeof(float))};
      const Error error = run_and_fail(me.communicator, std::move(call));
      told = true;
      EXPECT_EQ(error.code, ErrorCode::kAborted) << error;
      return;
    }
    const auto operation = me.communicator.prepare(all_reduce(data));
    me.communicator.launch({&operation, 1}, true);
    std::thread aborter([&] { me.communicator.abort("enough"); });
    EXPECT_TRUE(me.communicator.engine().wait(*operation, Deadline::after(seconds(5))));
    aborter.join();
    ASSERT_NE(operation->error(), nullptr);
    EXPECT_EQ(operation->error()->code, ErrorCode::kAborted);
    EXPECT_NE(operation->error()->message.find("enough"), std::string::npos);
    // Links are made when they are needed: a rank that leaves before has told nobody.
    const Deadline deadline = Deadline::after(seconds(60));
    while (!told && !deadline.expired()) std::this_thread::yield();
  });
}

TEST(Engine, AnAbortWhileAnotherThreadDrivesIsHeardAlthoughNobodyWaits) {
  std::atomic<bool> heard{false};
  on_ranks(2, Config{}, [&](Rank me) {
    if (me.rank == 0) {
      me.runtime.engine().with_mesh([&](Mesh&, const std::function<void()>&) {
        std::thread([&] { me.communicator.abort("a test"); }).join();
      });
      const Deadline patience = Deadline::after(seconds(20));
      while (!me.communicator.has_failed() && !patience.expired()) std::this_thread::yield();
      EXPECT_TRUE(me.communicator.has_failed());
      heard = true;
    }
    while (!heard) std::this_thread::yield();
  });
}

TEST(Engine, AGroupThatAPeerGaveUpBeforeItWasMadeHereHasFailed) {
  Config config;
  config.transports = {"tcp"};
  on_ranks(2, config, [](Rank me) {
    std::vector<float> data(10, 1.0f);
    me.communicator.run(all_reduce(data));
    std::shared_ptr<Communicator> group;
    if (me.rank == 0) {
      group = testing::on_hosts(me, {0, 1});
      group->abort("enough");
    }
    // Rank 0's abort arrives before this call, on the same link.
    me.communicator.run(all_reduce(data));
    if (me.rank == 1) {
      group = testing::on_hosts(me, {0, 1});
      const Error error = run_and_fail(*group, all_reduce(data));
      EXPECT_EQ(error.code, ErrorCode::kAborted);
      EXPECT_EQ(error.peer, 0);
      EXPECT_NE(error.message.find("enough"), std::string::npos) << error.message;
    }
    me.communicator.run(all_reduce(data));
  });
}

TEST(Engine, AnOperationThatNobodyWaitsForIsDoneAllTheSame) {
  on_ranks(2, Config{}, [](Rank me) {
    std::vector<float> data(100'000, 1.0f);
    const auto operation = me.communicator.prepare(all_reduce(data));
    me.communicator.launch({&operation, 1}, false);
    const Deadline deadline = Deadline::after(seconds(10));
    while (!operation->done() && !deadline.expired()) std::this_thread::yield();
    ASSERT_TRUE(operation->done());
    ASSERT_EQ(operation->error(), nullptr);
    EXPECT_EQ(data, std::vector<float>(100'000, 2.0f));
  });
}

TEST(Engine, ManyThreadsWaitForTheirOwnOperations) {
  on_ranks(2, Config{}, [](Rank me) {
    constexpr int kThreads = 6;
    std::vector<std::shared_ptr<Communicator>> groups;
    for (int i = 0; i < kThreads; ++i)
      groups.push_back(me.communicator.split(std::vector<int>{0, 1}, "g"));
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        for (int k = 0; k < 50; ++k) {
          std::vector<float> data(static_cast<size_t>(1 + 997 * (k % 5)), static_cast<float>(i));
          groups[static_cast<size_t>(i)]->run(all_reduce(data));
          ASSERT_EQ(data.back(), static_cast<float>(2 * i));
        }
      });
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(Engine, BytesMayFollowAReductionWhateverTheirNumber) {
  on_ranks(2, Config{}, [](Rank me) {
    std::vector<float> sum(7, 1.0f);
    me.communicator.run(all_reduce(sum));
    // Long enough to be announced, and no multiple of the four bytes that were added just now.
    std::vector<uint8_t> data(12'029, me.rank == 0 ? 7 : 0);
    me.communicator.run({.collective = Collective::kBroadcast,
                         .type = DataType::kUInt8,
                         .root = 0,
                         .input = Layout::even(region(data), 1, 1),
                         .output = Layout::even(region(data), 1, 1)});
    EXPECT_EQ(data, std::vector<uint8_t>(12'029, 7));
  });
}

TEST(Engine, WaitReturnsAtItsOwnDeadline) {
  std::atomic<bool> finished{false};
  on_ranks(2, Config{}, [&](Rank me) {
    std::vector<float> data(10, 1.0f);
    if (me.rank == 0) {
      const auto operation = me.communicator.prepare(all_reduce(data));
      me.communicator.launch({&operation, 1}, true);
      EXPECT_FALSE(me.communicator.engine().wait(*operation, Deadline::after(milliseconds(30))));
      finished = true;
      EXPECT_TRUE(me.communicator.engine().wait(*operation, Deadline::after(seconds(10))));
      EXPECT_EQ(data[0], 2.0f);
    } else {
      while (!finished) std::this_thread::yield();
      me.communicator.run(all_reduce(data));
    }
  });
}

TEST(Engine, MisuseIsToldAtOnce) {
  on_ranks(2, Config{}, [](Rank me) {
    std::vector<float> data(10, 1.0f);
    Call call = all_reduce(data);
    call.op = ReduceOp::kBitAnd;
    EXPECT_EQ(run_and_fail(me.communicator, std::move(call)).code, ErrorCode::kUnsupported);
    Call far{.collective = Collective::kBroadcast, .type = DataType::kFloat32, .root = 7};
    EXPECT_EQ(run_and_fail(me.communicator, std::move(far)).code, ErrorCode::kMisuse);
    me.communicator.run(all_reduce(data));  // neither has harmed the group
    EXPECT_EQ(data[0], 2.0f);
  });
}

}  // namespace
}  // namespace hccl_like
