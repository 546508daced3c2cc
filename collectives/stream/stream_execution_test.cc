// Calls made by streams of a fake device, ranks as threads over shared memory.
#include "collectives/stream/stream_execution.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "collectives/testing/on_ranks.h"
#include "device/host/host_api.h"
#include "device/testing/fake_device.h"

namespace hccl_like {
namespace {

using testing::on_ranks;
using testing::Rank;

constexpr size_t kUint64 = sizeof(uint64_t);

// All ranks are in one process, so a peer's memory is reached by its own handle.
namespace sharing {

inline std::mutex mutex;
inline std::set<void*> refused;  // cannot be opened

int export_range(int, hcd_ref ref, size_t bytes, hcd_ipc_handle* handle, uint64_t* offset) {
  if (fake_device::find(ref, bytes) == nullptr)
    return fake_device::fail(HCD_INVALID, "the range leaves the allocation");
  *handle = {};
  std::memcpy(handle->bytes, &ref.base, sizeof ref.base);
  *offset = ref.offset;
  return HCD_OK;
}
int open(int, const hcd_ipc_handle* handle, void** base, size_t* bytes) {
  std::memcpy(base, handle->bytes, sizeof *base);
  const std::lock_guard lock(mutex);
  if (refused.contains(*base)) return fake_device::fail(HCD_UNSUPPORTED, "no way to that device");
  *bytes = static_cast<fake_device::Allocation*>(*base)->bytes.size();
  return HCD_OK;
}
int close(int, void*) { return HCD_OK; }

hcd_api table() {
  hcd_api api = fake_device::api();
  api.ipc_export = export_range;
  api.ipc_open = [](int, const hcd_ipc_handle*, void**, size_t*) {
    return fake_device::fail(HCD_UNSUPPORTED, "the host does not reach the memory");
  };
  api.ipc_close = close;
  api.peer_open = open;
  api.peer_close = close;
  // Each page has one address here, and would be registered by each rank.
  api.host_register = nullptr;
  api.host_unregister = nullptr;
  return api;
}

// The host's memory at its own address, so that ThreadSanitizer sees what words order.
hcd_api host_table() {
  hcd_api api = host_api();
  api.ipc_export = [](int, hcd_ref ref, size_t, hcd_ipc_handle* handle, uint64_t* offset) {
    void* const at = static_cast<std::byte*>(ref.base) + ref.offset;
    *handle = {};
    std::memcpy(handle->bytes, &at, sizeof at);
    return *offset = 0, int{HCD_OK};
  };
  api.ipc_open = [](int, const hcd_ipc_handle* handle, void** host, size_t* bytes) {
    std::memcpy(host, handle->bytes, sizeof *host);
    return *bytes = 4096, int{HCD_OK};
  };
  api.ipc_close = close;
  return api;
}

}  // namespace sharing

// A rank's memory on the device, as numbers.
struct Numbers {
  explicit Numbers(size_t numbers) : count(numbers) { memory.bytes.resize(count * kUint64); }
  uint64_t* begin() { return reinterpret_cast<uint64_t*>(memory.bytes.data()); }
  std::vector<uint64_t> read() { return {begin(), begin() + count}; }
  StreamExecution::Side side() { return {{&memory, 0}, count * kUint64}; }
  fake_device::Allocation memory;
  const size_t count;
};

struct Devices {
  const hcd_api table = sharing::table();
  const Device device{table};
  const hcd_api host_table = sharing::host_table();
  const Device host{host_table};
  std::mutex mutex;
  std::deque<Numbers> memory;  // of all ranks; peers still read that of a rank that has failed
};

uint64_t number(int rank, size_t i) { return (i + 1) * 1000 + static_cast<uint64_t>(rank); }
void fill(Numbers& numbers, int rank) {
  for (size_t i = 0; i < numbers.count; ++i) numbers.begin()[i] = number(rank, i);
}

// The layout of a side, of which only the sizes matter.
Layout sizes(size_t numbers, size_t chunks) {
  return Layout::even(Region{reinterpret_cast<std::byte*>(64), numbers * kUint64}, chunks, kUint64);
}
Layout own(int rank, size_t numbers) {
  const Region region{reinterpret_cast<std::byte*>(64), numbers * kUint64};
  return Layout::single({&region, 1}, static_cast<size_t>(rank), kUint64);
}

struct Executor {
  Executor(Devices& devices, const Rank& me)
      : devices(devices),
        device(devices.device),
        of(me.communicator.shared_from_this(), device, 0, devices.host, 0),
        me(me) {}

  Numbers& make(size_t count) {
    const std::lock_guard lock(devices.mutex);
    return devices.memory.emplace_back(count);
  }

  std::unique_ptr<StreamExecution> prepare(Call call, StreamExecution::Side input,
                                           StreamExecution::Side output) {
    return std::make_unique<StreamExecution>(of, std::move(call), input, output);
  }
  // One call after the other.
  bool run(Call call, StreamExecution::Side input, StreamExecution::Side output) {
    const auto execution = prepare(std::move(call), input, output);
    if (!execution->agree()) return false;
    execution->queue(std::nullopt);
    execution->await_begin();
    const auto error = execution->finish();
    EXPECT_FALSE(error.has_value()) << to_string(*error);
    return true;
  }

  Devices& devices;
  const Device& device;
  StreamExecutor of;
  const Rank me;
};

class Executors : public ::testing::TestWithParam<int> {
 protected:
  void run(const std::function<void(Rank, Executor&)>& body) {
    Devices devices;
    on_ranks(GetParam(), {}, [&](Rank me) {
      ASSERT_TRUE(StreamExecutor::may_serve(devices.device, me.communicator.topology().hosts,
                                            me.communicator.path_options(Collective::kAllReduce),
                                            Collective::kAllReduce));
      Executor executor(devices, me);
      body(me, executor);
    });
  }
};

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
    const StreamExecution::Side none;

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
                                 ? StreamExecution::Side{other.side().begin, kCount * kUint64}
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

// Bytes of one component of a float or complex type; 0 for other types.
size_t component(DataType type) {
  if (is_integer(type) || type == DataType::kBool) return 0;
  const bool is_complex = type == DataType::kComplex64 || type == DataType::kComplex128;
  return size_of(type) / (is_complex ? 2 : 1);
}

// Random elements; floats below 2 in magnitude, so that no sum or product has a NaN.
std::vector<std::byte> random_elements(DataType type, size_t count, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<std::byte> bytes(count * size_of(type));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  if (type == DataType::kBool)
    for (std::byte& byte : bytes) byte &= std::byte{1};
  if (const size_t size = component(type))
    for (size_t last = size - 1; last < bytes.size(); last += size) bytes[last] &= std::byte{0xbf};
  return bytes;
}

// With more than two ranks sums are in the order of the ranks; with two, both orders are the same.
TEST_P(Executors, EveryTypeAndOperationHasTheBitsOfTheHost) {
  run([](Rank me, Executor& executor) {
    constexpr size_t kCount = 37;
    Numbers& memory = executor.make(2 * kCount);  // as large as any type needs
    for (int t = 0; t < kDataTypes; ++t)
      for (int o = 0; o < kReduceOps; ++o) {
        const auto type = static_cast<DataType>(t);
        const auto op = static_cast<ReduceOp>(o);
        const Reduction& host = reduction(type, op);
        if (!host.valid()) continue;
        std::vector<std::vector<std::byte>> inputs;
        std::vector<const std::byte*> sources;
        for (int rank = 0; rank < me.size; ++rank) {
          inputs.push_back(random_elements(type, kCount, 100 * rank + t));
          sources.push_back(inputs.back().data());
        }
        std::vector<std::byte> expected(inputs.front().size());
        const Scaling scales = scaling(type, op, me.size, 1.5);
        host.combine_all(expected.data(), nullptr, sources, kCount, scales);
        const std::vector<std::byte>& mine = inputs[static_cast<size_t>(me.rank)];
        std::memcpy(memory.begin(), mine.data(), mine.size());
        const Layout layout =
            Layout::even(Region{reinterpret_cast<std::byte*>(64), mine.size()}, 1, size_of(type));
        const StreamExecution::Side side{memory.side().begin, mine.size()};
        const bool made = executor.run({.collective = Collective::kAllReduce,
                                        .type = type,
                                        .op = op,
                                        .factor = op == ReduceOp::kPreMulSum ? 1.5 : 1.0,
                                        .input = layout,
                                        .output = layout},
                                       side, side);
        // Averages of integers are not among a plugin's operations.
        EXPECT_EQ(made, !scales.any() || component(type) > 0) << name(type) << ' ' << name(op);
        if (made) {
          EXPECT_EQ(std::memcmp(memory.begin(), expected.data(), expected.size()), 0)
              << name(type) << ' ' << name(op);
        }
      }
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

TEST_P(Executors, MemoryThatCannotBeMappedIsRefusedByAll) {
  run([](Rank me, Executor& executor) {
    Numbers& in = executor.make(10);
    if (me.rank == 0) {
      const std::lock_guard lock(sharing::mutex);
      sharing::refused.insert(&in.memory);
    }
    const Call call{
        .collective = Collective::kAllReduce, .input = sizes(10, 1), .output = sizes(10, 1)};
    EXPECT_FALSE(executor.run(call, in.side(), in.side()));
    {
      const std::lock_guard lock(sharing::mutex);
      sharing::refused.clear();
    }
    // The answer holds for the group; the group itself has not failed.
    EXPECT_FALSE(executor.run(call, in.side(), in.side()));
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
