// Calls made by streams of a fake device, ranks as threads over shared memory.
#include "collectives/stream/stream_execution.h"

#include <atomic>
#include <thread>

#include "collectives/stream/testing/executors.h"

namespace hccl_like {
namespace {

using on_streams::Executor;
using on_streams::Executors;
using on_streams::fill;
using on_streams::kUint64;
using on_streams::number;
using on_streams::Numbers;
using on_streams::own;
using on_streams::sizes;
using testing::Rank;

TEST_P(Executors, ReduceInPlaceAndApart) {
  run([](Rank me, Executor& executor) {
    for (const size_t count : {size_t{1}, size_t{7}, size_t{1000}}) {
      Numbers &in = executor.make(count), &out = executor.make(count);
      std::vector<uint64_t> expected(count);
      for (size_t i = 0; i < count; ++i)
        for (int rank = 0; rank < me.size; ++rank) expected[i] += number(rank, i);
      fill(in, me.rank);
      const Call call{.collective = Collective::kAllReduce,
                      .type = DataType::kUInt64,
                      .input = sizes(count, 1),
                      .output = sizes(count, 1)};
      ASSERT_TRUE(executor.run(call, in.side(), out.side()));
      EXPECT_EQ(out.read(), expected);
      ASSERT_TRUE(executor.run(call, in.side(), in.side()));
      EXPECT_EQ(in.read(), expected);
    }
  });
}

TEST_P(Executors, EveryCollectiveHasItsResult) {
  run([](Rank me, Executor& executor) {
    constexpr size_t kCount = 13;
    const auto n = static_cast<size_t>(me.size), r = static_cast<size_t>(me.rank);
    const int root = me.size - 1;
    const bool is_root = me.rank == root;
    Numbers &one = executor.make(kCount), &all = executor.make(kCount * n),
            &other = executor.make(kCount * n);
    const auto from = [&](int rank, size_t begin) {
      std::vector<uint64_t> numbers(kCount);
      for (size_t i = 0; i < kCount; ++i) numbers[i] = number(rank, begin + i);
      return numbers;
    };
    const auto part = [&](Numbers& numbers, size_t chunk) {
      return std::vector(numbers.begin() + chunk * kCount, numbers.begin() + (chunk + 1) * kCount);
    };
    const auto sum = [&](size_t begin) {
      std::vector<uint64_t> numbers(kCount);
      for (size_t i = 0; i < kCount; ++i)
        for (int rank = 0; rank < me.size; ++rank) numbers[i] += number(rank, begin + i);
      return numbers;
    };
    const DeviceRange none;

    fill(one, me.rank);
    ASSERT_TRUE(executor.run({.collective = Collective::kAllGather,
                              .type = DataType::kUInt64,
                              .input = own(me.rank, kCount),
                              .output = sizes(kCount * n, n)},
                             one.side(), all.side()));
    for (size_t p = 0; p < n; ++p) EXPECT_EQ(part(all, p), from(static_cast<int>(p), 0));

    ASSERT_TRUE(executor.run({.collective = Collective::kGather,
                              .type = DataType::kUInt64,
                              .root = root,
                              .input = own(me.rank, kCount),
                              .output = is_root ? sizes(kCount * n, n) : Layout()},
                             one.side(), is_root ? other.side() : none));
    for (size_t p = 0; p < n && is_root; ++p)
      EXPECT_EQ(part(other, p), from(static_cast<int>(p), 0));

    fill(all, me.rank);
    ASSERT_TRUE(executor.run({.collective = Collective::kReduceScatter,
                              .type = DataType::kUInt64,
                              .input = sizes(kCount * n, n),
                              .output = own(me.rank, kCount)},
                             all.side(), one.side()));
    EXPECT_EQ(one.read(), sum(r * kCount));

    ASSERT_TRUE(executor.run({.collective = Collective::kAllToAll,
                              .type = DataType::kUInt64,
                              .input = sizes(kCount * n, n),
                              .output = sizes(kCount * n, n)},
                             all.side(), other.side()));
    for (size_t p = 0; p < n; ++p) EXPECT_EQ(part(other, p), from(static_cast<int>(p), r * kCount));

    ASSERT_TRUE(executor.run({.collective = Collective::kScatter,
                              .type = DataType::kUInt64,
                              .root = root,
                              .input = is_root ? sizes(kCount * n, n) : Layout(),
                              .output = own(me.rank, kCount)},
                             is_root ? all.side() : none, one.side()));
    EXPECT_EQ(one.read(), from(root, r * kCount));

    fill(one, me.rank);
    ASSERT_TRUE(executor.run({.collective = Collective::kReduce,
                              .type = DataType::kUInt64,
                              .root = root,
                              .input = sizes(kCount, 1),
                              .output = sizes(kCount, 1)},
                             one.side(),
                             other.side().bytes > 0 && is_root
                                 ? DeviceRange{other.side().begin, kCount * kUint64}
                                 : none));
    if (is_root) {
      EXPECT_EQ(part(other, 0), sum(0));
    }

    fill(one, me.rank);
    ASSERT_TRUE(executor.run({.collective = Collective::kBroadcast,
                              .type = DataType::kUInt64,
                              .root = root,
                              .input = sizes(kCount, 1),
                              .output = sizes(kCount, 1)},
                             one.side(), one.side()));
    EXPECT_EQ(one.read(), from(root, 0));
  });
}

// Programs are queued before those of earlier calls have ended.
TEST_P(Executors, SeveralCallsAreInFlight) {
  run([](Rank me, Executor& executor) {
    constexpr size_t kCalls = 5, kCount = 1000;
    std::vector<Numbers*> numbers;
    std::vector<std::unique_ptr<StreamExecution>> calls;
    for (size_t i = 0; i < kCalls; ++i) {
      numbers.push_back(&executor.make(kCount));
      fill(*numbers.back(), me.rank);
      calls.push_back(executor.prepare({.collective = Collective::kAllReduce,
                                        .type = DataType::kUInt64,
                                        .input = sizes(kCount, 1),
                                        .output = sizes(kCount, 1)},
                                       numbers.back()->side(), numbers.back()->side()));
    }
    for (const auto& call : calls) {
      ASSERT_TRUE(call->agree());
      call->queue(std::nullopt);
    }
    for (size_t i = 0; i < kCalls; ++i) {
      ASSERT_FALSE(calls[i]->finish().has_value());
      uint64_t expected = 0;
      for (int rank = 0; rank < me.size; ++rank) expected += number(rank, 0);
      EXPECT_EQ(numbers[i]->begin()[0], expected);
    }
  });
}

// Also after calls with other memory; those go on as before.
TEST_P(Executors, MemoryThatCannotBeMappedIsRefusedByAll) {
  run([](Rank me, Executor& executor) {
    Numbers &first = executor.make(10), &bad = executor.make(10), &later = executor.make(10);
    const Call call{.collective = Collective::kAllReduce,
                    .type = DataType::kUInt64,
                    .input = sizes(10, 1),
                    .output = sizes(10, 1)};
    if (me.rank == 0) {
      const std::lock_guard lock(on_streams::sharing::mutex);
      on_streams::sharing::refused.insert(&bad.memory);
    }
    EXPECT_TRUE(executor.run(call, first.side(), first.side()));
    EXPECT_FALSE(executor.run(call, bad.side(), bad.side()));
    EXPECT_TRUE(executor.run(call, first.side(), first.side()));
    if (me.rank == 0) {
      const std::lock_guard lock(on_streams::sharing::mutex);
      on_streams::sharing::refused.clear();
    }
    EXPECT_FALSE(executor.run(call, bad.side(), bad.side()));
    EXPECT_TRUE(executor.run(call, later.side(), later.side()));
    EXPECT_FALSE(me.communicator.failure().has_value());
  });
}

TEST_P(Executors, DifferentCallsAreAMismatch) {
  run([](Rank me, Executor& executor) {
    const size_t count = me.rank == 0 ? 10 : 12;
    Numbers& in = executor.make(count);
    const auto call = executor.prepare({.collective = Collective::kAllReduce,
                                        .type = DataType::kUInt64,
                                        .input = sizes(count, 1),
                                        .output = sizes(count, 1)},
                                       in.side(), in.side());
    EXPECT_FALSE(call->agree());
    ASSERT_NE(call->exchange()->error(), nullptr);
    EXPECT_EQ(cause(*call->exchange()->error()), ErrorCode::kMismatch);
    EXPECT_NE(call->exchange()->error()->message.find(
                  "all_reduce of uint64 (sum): rank 0 passed 10 elements"),
              std::string::npos)
        << call->exchange()->error()->message;
  });
}

// The streams of the others wait for a rank that has queued nothing.
TEST_P(Executors, AnAbortEndsTheStreamsOfAll) {
  std::atomic<int> queued{0};
  run([&](Rank me, Executor& executor) {
    Numbers& in = executor.make(1000);
    fill(in, me.rank);
    const auto call = executor.prepare({.collective = Collective::kAllReduce,
                                        .type = DataType::kUInt64,
                                        .input = sizes(1000, 1),
                                        .output = sizes(1000, 1)},
                                       in.side(), in.side());
    ASSERT_TRUE(call->agree());
    if (me.rank == 0) {
      while (queued < me.size - 1) std::this_thread::yield();
      me.communicator.abort("a test");
    } else {
      call->queue(std::nullopt);
      ++queued;
      const auto error = call->finish();
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->code, ErrorCode::kAborted);
    }
  });
}

TEST_P(Executors, ALostDeviceEndsTheCallOfAll) {
  on_streams::sharing::lost = true;
  run([](Rank, Executor& executor) {
    Numbers& in = executor.make(1000);
    Call call{.collective = Collective::kAllReduce,
              .type = DataType::kUInt64,
              .input = sizes(1000, 1),
              .output = sizes(1000, 1)};
    call.timeout = std::chrono::milliseconds(500);
    const auto execution = executor.prepare(call, in.side(), in.side());
    ASSERT_TRUE(execution->agree());
    execution->queue(std::nullopt);
    EXPECT_TRUE(execution->finish().has_value());
  });
  on_streams::sharing::lost = false;
}

// The stream of rank 0 never gets to the call.
TEST_P(Executors, ATimeOutNamesTheCallAndTheRank) {
  run([](Rank me, Executor& executor) {
    Numbers& in = executor.make(1000);
    Call call{.collective = Collective::kAllReduce,
              .type = DataType::kUInt64,
              .number = 77,
              .input = sizes(1000, 1),
              .output = sizes(1000, 1)};
    call.timeout = std::chrono::milliseconds(500);
    const auto execution = executor.prepare(call, in.side(), in.side());
    ASSERT_TRUE(execution->agree());
    const Device& device = executor.device;
    DeviceStream busy = device.make_stream(0, 0).value();
    std::atomic<bool> go{me.rank != 0};
    const auto wait = [](void* self) { static_cast<std::atomic<bool>*>(self)->wait(false); };
    ASSERT_FALSE(device.host_function(0, busy.get(), wait, &go).has_value());
    execution->queue(device.record(0, busy.get()).value());
    std::optional<Error> error;
    if (me.rank == 0) {
      while (!me.communicator.has_failed())
        me.runtime.engine().wait([&] { return me.communicator.has_failed(); },
                                 Deadline::after(std::chrono::seconds(10)));
      go = true, go.notify_all();
    }
    execution->await_begin();
    error = execution->finish();
    ASSERT_TRUE(error.has_value());
    if (me.rank == 0) return;
    EXPECT_EQ(cause(*error), ErrorCode::kTimeout) << to_string(*error);
    EXPECT_NE(error->message.find("all_reduce #77"), std::string::npos) << error->message;
    EXPECT_NE(error->message.find("rank 0"), std::string::npos) << error->message;
    EXPECT_FALSE(device.synchronize(0, busy.get()).has_value());
  });
}

INSTANTIATE_TEST_SUITE_P(Streams, Executors, ::testing::Values(2, 3, 4, 8),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace hccl_like
