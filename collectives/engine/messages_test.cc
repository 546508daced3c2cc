// Short messages on their short way, and that they mix with all others.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "collectives/engine/communicator.h"
#include "collectives/testing/on_ranks.h"
#include "device/host/host_api.h"
#include "device/host/host_ipc.h"
#include "device/host/shared_pool.h"

namespace hccl_like {
namespace {

using testing::on_ranks;
using testing::Rank;
using testing::region;

using Bytes = std::vector<uint8_t>;

Bytes message(int from, size_t bytes, uint32_t number = 0) {
  Bytes data(bytes);
  for (size_t i = 0; i < bytes; ++i)
    data[i] = static_cast<uint8_t>(i * 31 + static_cast<size_t>(from) * 7 + number);
  return data;
}

Call send(Bytes& data, int to, uint32_t tag = 0) {
  return {.collective = Collective::kSend,
          .root = to,
          .tag = tag,
          .input = Layout::even(region(data), 1, 1)};
}

Call recv(Bytes& data, int from, uint32_t tag = 0) {
  return {.collective = Collective::kRecv,
          .root = from,
          .tag = tag,
          .output = Layout::even(region(data), 1, 1)};
}

const std::vector<size_t> kSizes{0, 1, 8, 63, 1024, 8191, 8193, 65'536, 65'537, 100'003};

struct Case {
  const char* transport;
  uint32_t backoff;
};

// Lies in memory that the other ranks can map.
class Shared {
 public:
  explicit Shared(size_t bytes)
      : bytes_(bytes),
        memory_(
            static_cast<uint8_t*>(SharedPool::of_process().allocate(std::max<size_t>(bytes, 1)))) {
    std::fill(memory_, memory_ + bytes, uint8_t{0xee});
  }
  ~Shared() { SharedPool::of_process().free(memory_); }
  Shared(const Shared&) = delete;

  void show(Call& call) const {
    const bool sends = call.collective == Collective::kSend;
    (sends ? call.input : call.output) =
        Layout::even(Region{reinterpret_cast<std::byte*>(memory_), bytes_}, 1, 1);
    static const Device host(host_api());
    call.device = &host;
    (sends ? call.shared_input : call.shared_output) = shared_range(memory_, bytes_);
  }
  void set(const Bytes& data) { std::copy(data.begin(), data.end(), memory_); }
  Bytes get() const { return Bytes(memory_, memory_ + bytes_); }

 private:
  size_t bytes_;
  uint8_t* memory_;
};

class Messages : public ::testing::TestWithParam<Case> {
 protected:
  void run(int ranks, const std::function<void(Rank)>& body) const {
    Config config;
    config.transports = {GetParam().transport};
    config.spins = config.yields = GetParam().backoff;
    on_ranks(ranks, config, body);
  }
};
INSTANTIATE_TEST_SUITE_P(, Messages,
                         ::testing::Values(Case{"shm", 100}, Case{"shm", 0}, Case{"tcp", 100}),
                         [](const auto& one) {
                           return std::string(one.param.transport) +
                                  (one.param.backoff == 0 ? "AtOnce" : "");
                         });

// The operations of a message in slices of `step` bytes, two at least.
std::vector<std::shared_ptr<Operation>> in_slices(Communicator& communicator, const Call& whole,
                                                  Bytes& data, size_t step, size_t claimed) {
  std::vector<std::shared_ptr<Operation>> operations;
  for (size_t begin = 0; begin < data.size() || operations.size() < 2; begin += step) {
    const size_t bytes = std::min(step, data.size() - begin);
    const Layout part =
        Layout::even(Region{reinterpret_cast<std::byte*>(data.data()) + begin, bytes}, 1, 1);
    Call call = whole;
    (whole.collective == Collective::kSend ? call.input : call.output) = part;
    operations.push_back(operations.empty()
                             ? communicator.prepare(std::move(call))
                             : communicator.prepare_slice(operations.front(), std::move(call),
                                                          static_cast<uint32_t>(operations.size()),
                                                          claimed));
  }
  return operations;
}

void finish(Communicator& communicator, std::span<const std::shared_ptr<Operation>> operations) {
  communicator.launch(operations, /*waited_for=*/true);
  communicator.engine().wait(operations, Deadline::never());
  for (const auto& operation : operations)
    if (const Error* error = operation->error()) throw Exception(*error);
}

// Two messages each way at once, of which neither end knows more than the sizes, and small ones
// between them.
TEST_P(Messages, GoInSlicesLikeOthersBetweenThem) {
  constexpr size_t kStep = 4096;
  for (const size_t bytes : {kStep, kStep + 1, 2 * kStep, 5 * kStep + 77})
    run(2, [&](Rank me) {
      const int other = 1 - me.rank;
      Communicator& communicator = me.communicator;
      for (const bool from_any : {false, true}) {
        Bytes first = message(me.rank, bytes, 1), second = message(me.rank, bytes + 9, 2);
        Bytes small = message(me.rank, 20, 3);
        Bytes got_first(bytes), got_second(bytes + 9), got_small(20);
        const int source = from_any ? kAnySource : other;
        std::vector<std::shared_ptr<Operation>> all;
        const auto add = [&](const Call& call, Bytes& data) {
          for (auto& one : in_slices(communicator, call, data, kStep, data.size()))
            all.push_back(std::move(one));
        };
        add(recv(got_first, source), got_first);
        all.push_back(communicator.prepare(recv(got_small, source)));
        add(recv(got_second, source), got_second);
        add(send(first, other), first);
        all.push_back(communicator.prepare(send(small, other)));
        add(send(second, other), second);
        finish(communicator, all);
        EXPECT_EQ(got_first, message(other, bytes, 1));
        EXPECT_EQ(got_small, message(other, 20, 3));
        EXPECT_EQ(got_second, message(other, bytes + 9, 2));
      }
    });
}

TEST_P(Messages, InSlicesAreRefusedWhereTheirWholeDiffersInSize) {
  run(2, [&](Rank me) {
    constexpr size_t kStep = 4096;
    Bytes data(3 * kStep);
    const Call call = me.rank == 0 ? send(data, 1) : recv(data, 0);
    const size_t claimed = data.size() + 1000 * static_cast<size_t>(me.rank);
    try {
      finish(me.communicator, in_slices(me.communicator, call, data, kStep, claimed));
      finish(me.communicator,
             std::vector{me.communicator.prepare({})});  // whoever was done by then
      ADD_FAILURE() << "rank " << me.rank << " did not notice";
    } catch (const Exception& error) {
      EXPECT_NE(error.error().message.find("4096 elements"), std::string::npos)
          << error.error().message;
      EXPECT_NE(error.error().message.find("expected in all"), std::string::npos)
          << error.error().message;
    }
  });
}

TEST_P(Messages, GoRoundTheRingInEitherOrder) {
  for (const int ranks : {2, 3})
    run(ranks, [](Rank me) {
      const int next = (me.rank + 1) % me.size, before = (me.rank + me.size - 1) % me.size;
      for (uint32_t round = 0; round < 60; ++round) {
        const size_t bytes = kSizes[round % kSizes.size()];
        Bytes out = message(me.rank, bytes, round), in(bytes);
        std::vector<Call> calls{recv(in, before), send(out, next)};
        if (round % 2 == 0) std::swap(calls[0], calls[1]);
        me.communicator.run(calls);
        ASSERT_EQ(in, message(before, bytes, round)) << bytes << " bytes";
      }
    });
}

TEST_P(Messages, OfMemoryThatPeersMapGoRoundTheRing) {
  for (const int ranks : {2, 3})
    run(ranks, [](Rank me) {
      const int next = (me.rank + 1) % me.size, before = (me.rank + me.size - 1) % me.size;
      uint32_t round = 0;
      for (const size_t bytes : {size_t{0}, size_t{100}, size_t{32'767}, size_t{32'768},
                                 size_t{65'537}, size_t{1'000'003}, size_t{3'000'000}}) {
        // One of the four has ordinary memory in some rounds.
        for (const int ordinary : {-1, 0, 1}) {
          Bytes plain;
          Shared out(bytes), in(bytes);
          out.set(message(me.rank, bytes, ++round));
          std::vector<Call> calls{send(plain, next), recv(plain, before)};
          out.show(calls[0]);
          in.show(calls[1]);
          if (me.rank == ordinary) calls[round % 2].device = nullptr;
          me.communicator.run(calls);
          ASSERT_EQ(in.get(), message(before, bytes, round)) << bytes << " bytes";
        }
      }
    });
}

TEST_P(Messages, OfMemoryThatPeersMapComeWhoeverIsLate) {
  run(2, [](Rank me) {
    for (uint32_t round = 0; round < 60; ++round) {
      Bytes plain;
      Shared out(65'536 + round), in(65'536 + round);
      out.set(message(me.rank, 65'536 + round, round));
      std::vector<Call> calls{send(plain, 1 - me.rank), recv(plain, 1 - me.rank)};
      out.show(calls[0]);
      in.show(calls[1]);
      // Neither, one of them, or the other; together, or the send before the receive.
      if (round % 3 == static_cast<uint32_t>(me.rank) + 1)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (round % 2 == 0) {
        me.communicator.run(calls);
      } else {
        std::swap(calls[0], calls[static_cast<size_t>(me.rank)]);
        for (const Call& call : calls) me.communicator.run({&call, 1});
      }
      ASSERT_EQ(in.get(), message(1 - me.rank, 65'536 + round, round)) << round;
    }
  });
}

TEST_P(Messages, KeepTheirOrderWhicheverWayTheyGo) {
  run(2, [](Rank me) {
    constexpr uint32_t kMessages = 90;
    const auto bytes = [](uint32_t i) { return kSizes[i * 5 % kSizes.size()]; };
    const auto one = [&](Call call, uint32_t i) {
      if (i % 3 == 0) {
        const std::shared_ptr<Operation> operation = me.communicator.prepare(std::move(call));
        me.communicator.launch({&operation, 1}, false);
        me.communicator.engine().wait(*operation, Deadline::never());
        ASSERT_EQ(operation->error(), nullptr);
      } else {
        me.communicator.run({&call, 1});
      }
    };
    for (uint32_t i = 0; i < kMessages; ++i) {
      Bytes data = me.rank == 0 ? message(0, bytes(i), i) : Bytes(bytes(i));
      if (me.rank == 0)
        one(send(data, 1), i);
      else
        one(recv(data, i % 7 == 2 ? kAnySource : 0), i / 2);
      ASSERT_EQ(data, message(0, bytes(i), i)) << i;
    }
  });
}

TEST_P(Messages, OfSeveralThreadsDoNotMeet) {
  run(2, [](Rank me) {
    std::vector<std::thread> threads;
    for (uint32_t tag = 0; tag < 3; ++tag)
      threads.emplace_back([&, tag] {
        for (uint32_t round = 0; round < 100; ++round) {
          Bytes out = message(me.rank, 100 * tag + 1, round), in(out.size());
          const std::vector<Call> calls{send(out, 1 - me.rank, tag), recv(in, 1 - me.rank, tag)};
          me.communicator.run(calls);
          ASSERT_EQ(in, message(1 - me.rank, in.size(), round));
        }
      });
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_P(Messages, OfDifferentSizesAreRefused) {
  run(2, [](Rank me) {
    Bytes data(me.rank == 0 ? 100u : 101u, 7);
    Call call = me.rank == 0 ? send(data, 1) : recv(data, 0);
    if (me.rank == 0) {
      me.communicator.run({&call, 1});
      return;
    }
    try {
      me.communicator.run({&call, 1});
      ADD_FAILURE() << "100 bytes were taken for 101";
    } catch (const Exception& exception) {
      EXPECT_EQ(exception.error().code, ErrorCode::kMismatch);
      EXPECT_NE(exception.error().message.find("rank 0 sent a message of 100 elements, rank 1 "
                                               "expects a message of 101 elements"),
                std::string::npos)
          << exception.error().message;
    }
    EXPECT_EQ(data, Bytes(101, 7));
  });
}

TEST_P(Messages, FromARankThatLeftAreMissed) {
  run(2, [](Rank me) {
    Bytes data = message(1, 10);
    Call first = me.rank == 1 ? send(data, 0) : recv(data, 1);
    me.communicator.run({&first, 1});
    if (me.rank == 1) return;
    Call second = recv(data, 1);
    EXPECT_THROW(me.communicator.run({&second, 1}), Exception);
    EXPECT_THROW(me.communicator.run({&second, 1}), Exception);
  });
}

TEST_P(Messages, ThatNobodyTakesAreTheirSendersAgainWhenTheirGroupEnds) {
  std::atomic<bool> sending{false};
  run(2, [&](Rank me) {
    if (me.rank == 1) {
      while (!sending) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      me.communicator.abort("enough");
      return;
    }
    Bytes plain;
    Shared out(400'000);
    Call call = send(plain, 1);
    out.show(call);
    sending = true;
    if (me.communicator.engine().config().transports.front() == "shm") {
      EXPECT_THROW(me.communicator.run({&call, 1}), Exception);
      EXPECT_EQ(me.communicator.failure()->code, ErrorCode::kAborted);
      EXPECT_THROW(me.communicator.run({&call, 1}), Exception);
    }
  });
}

TEST_P(Messages, EndWithTheirGroup) {
  std::atomic<bool> waiting{false};
  run(2, [&](Rank me) {
    Bytes data(10);
    if (me.rank == 1) {
      while (!waiting) std::this_thread::yield();
      me.communicator.abort("enough");
      return;
    }
    waiting = true;
    Call call = recv(data, 1);
    EXPECT_THROW(me.communicator.run({&call, 1}), Exception);
    EXPECT_EQ(me.communicator.failure()->code, ErrorCode::kAborted);
  });
}

}  // namespace
}  // namespace hccl_like
