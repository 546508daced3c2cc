// Small all-reductions by kernels of a fake device, ranks as threads over shared memory.
#include "collectives/stream/small_calls.h"

#include <atomic>
#include <thread>

#include "collectives/engine/engine.h"
#include "collectives/stream/stream_execution.h"
#include "collectives/stream/testing/small_device.h"

namespace hccl_like {
namespace {

using on_streams::fill;
using on_streams::number;
using on_streams::Numbers;
using on_streams::sizes;
using testing::on_ranks;
using testing::Rank;

Call sum_of(size_t count) {
  return {.collective = Collective::kAllReduce,
          .type = DataType::kUInt64,
          .input = sizes(count, 1),
          .output = sizes(count, 1)};
}

// A rank whose next call is made by a kernel.
struct Caller {
  Caller(const Rank& me, const Device& device, const Device& host)
      : me(me),
        device(device),
        stream(device.make_stream(0, 0).value()),
        calls(me.communicator.shared_from_this(), device, 0, host, 0, sum_of(1)) {
    for (uint64_t i = 0; i < SmallCalls::kByHost; ++i) EXPECT_FALSE(calls.takes_next(sum_of(1)));
  }

  std::shared_ptr<Operation> queue(Numbers& in, Numbers& out,
                                   std::chrono::milliseconds timeout = {}) {
    Call call = sum_of(in.count);
    call.timeout = timeout;
    EXPECT_TRUE(calls.takes_next(call));
    auto operation = calls.queue(std::move(call), in.side(), out.side(), stream.get());
    me.communicator.launch({&operation, 1}, /*waited_for=*/false);
    return operation;
  }
  std::optional<Error> wait(const std::shared_ptr<Operation>& operation) const {
    EXPECT_TRUE(me.runtime.engine().wait(*operation, Deadline::after(std::chrono::seconds(20))));
    EXPECT_FALSE(device.synchronize(0, stream.get()).has_value());
    return operation->error() == nullptr ? std::nullopt : std::optional(*operation->error());
  }

  const Rank me;
  const Device& device;
  const DeviceStream stream;
  SmallCalls calls;
};

class SmallSums : public ::testing::TestWithParam<int> {
 protected:
  void run(const std::function<void(Rank, Caller&)>& body) {
    const hcd_api table = on_streams::small_table(), host_table = on_streams::sharing::host_table();
    const Device device(table), host(host_table);
    on_ranks(GetParam(), {}, [&](Rank me) {
      ASSERT_TRUE(SmallCalls::may_serve(device, me.communicator.topology().hosts,
                                        me.communicator.path_options(Collective::kAllReduce)));
      Caller caller(me, device, host);
      body(me, caller);
    });
  }
};

TEST_P(SmallSums, AreExactWhenSeveralAreQueued) {
  run([](Rank me, Caller& caller) {
    constexpr size_t kCalls = 40;
    std::deque<Numbers> in, out;
    std::vector<std::shared_ptr<Operation>> operations;
    for (size_t i = 0; i < kCalls; ++i) {
      fill(in.emplace_back(1 + i * 7), me.rank);
      operations.push_back(caller.queue(in.back(), out.emplace_back(1 + i * 7)));
    }
    for (size_t i = 0; i < kCalls; ++i) {
      EXPECT_FALSE(caller.wait(operations[i]).has_value());
      std::vector<uint64_t> expected(in[i].count);
      for (size_t at = 0; at < in[i].count; ++at)
        for (int rank = 0; rank < me.size; ++rank) expected[at] += number(rank, at);
      EXPECT_EQ(out[i].read(), expected);
    }
  });
}

TEST_P(SmallSums, TimeOutNamesTheRankThatIsMissing) {
  run([](Rank me, Caller& caller) {
    Numbers in(10), out(10);
    if (me.rank == 0) {
      me.runtime.engine().wait([&] { return me.communicator.has_failed(); },
                               Deadline::after(std::chrono::seconds(20)));
      return;
    }
    const auto error = caller.wait(caller.queue(in, out, std::chrono::milliseconds(300)));
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(cause(*error), ErrorCode::kTimeout) << to_string(*error);
    EXPECT_NE(error->message.find("waiting for rank 0."), std::string::npos) << error->message;
    EXPECT_EQ(out.read(), std::vector<uint64_t>(10, UINT64_MAX));
  });
}

// The stream of rank 0 gets to the call after more than the timeout.
TEST_P(SmallSums, TimeOutCountsFromTheBeginningOnTheDevice) {
  run([](Rank me, Caller& caller) {
    constexpr std::chrono::milliseconds kTimeout{500};
    Numbers in(10), out(10);
    fill(in, me.rank);
    std::atomic<bool> go{false};
    const auto wait = [](void* self) { static_cast<std::atomic<bool>*>(self)->wait(false); };
    ASSERT_FALSE(caller.device.host_function(0, caller.stream.get(), wait, &go).has_value());
    const auto operation = caller.queue(in, out, kTimeout);
    EXPECT_FALSE(me.runtime.engine().wait(*operation, Deadline::after(2 * kTimeout)));
    go = true, go.notify_all();
    EXPECT_FALSE(caller.wait(operation).has_value());
  });
}

TEST_P(SmallSums, ThatDifferAreAMismatch) {
  run([](Rank me, Caller& caller) {
    const size_t count = me.rank == 0 ? 10 : 11;
    Numbers in(count), out(count);
    const auto error = caller.wait(caller.queue(in, out));
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(cause(*error), ErrorCode::kMismatch) << to_string(*error);
  });
}

TEST_P(SmallSums, EndWithTheGroup) {
  std::atomic<int> queued{0}, ended{0};
  run([&](Rank me, Caller& caller) {
    Numbers in(10), out(10);
    if (me.rank == 0) {
      while (queued < me.size - 1) std::this_thread::yield();
      me.communicator.abort("a test");
      while (ended < me.size - 1) std::this_thread::yield();  // they would see that it leaves
      return;
    }
    const auto operation = caller.queue(in, out);
    ++queued;
    const auto error = caller.wait(operation);
    ++ended;
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(cause(*error), ErrorCode::kAborted) << to_string(*error);
  });
}

TEST_P(SmallSums, ThatAreCapturedKeepTheirAreaWhileAPeerReadsIt) {
  const hcd_api table = on_streams::small_table(), host_table = on_streams::sharing::host_table();
  const Device device(table), host(host_table);
  std::atomic<int> ended{0};
  on_streams::late_rank = 1, on_streams::freed = 0;
  on_ranks(GetParam(), {}, [&](Rank me) {
    Numbers in(10), out(10);
    fill(in, me.rank);
    const DeviceStream stream = device.make_stream(0, 0).value();
    StreamExecutor executor(me.communicator.shared_from_this(), device, 0, host, stream.get());
    auto execution = std::make_unique<StreamExecution>(executor, sum_of(10), in.side(), out.side(),
                                                       StreamExecution::Use::kCaptured);
    ASSERT_TRUE(execution->agree());
    ASSERT_FALSE(execution->capture(stream.get()).has_value());
    if (me.rank == 1) {
      while (ended < me.size - 1) std::this_thread::yield();
      EXPECT_EQ(on_streams::freed, 0);
      on_streams::late_rank = UINT32_MAX;
    }
    EXPECT_FALSE(device.synchronize(0, stream.get()).has_value());
    executor.await_replays();
    execution.reset();
    if (me.rank == 1) {
      EXPECT_EQ(on_streams::freed, 1);
    }
    ++ended;
    while (ended < me.size) std::this_thread::yield();
  });
}

INSTANTIATE_TEST_SUITE_P(Streams, SmallSums, ::testing::Values(2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace hccl_like
