// Calls that a Staging cuts into slices; main() of these tests makes the slices short.
#include "process_group/issue/staging.h"

#include "process_group/testing/members.h"

namespace hccl_like::testing {
namespace {

constexpr int64_t kCount = 200'003;  // float32, six slices of 128 KiB and a part

class StagingOn : public ::testing::TestWithParam<c10::Device> {};
INSTANTIATE_TEST_SUITE_P(Device, StagingOn, ::testing::Values(kBare, kStreams), device_name);

TEST_P(StagingOn, CallsInSlicesAreExact) {
  on_members(2, GetParam(), [&](Member& me) {
    const uint64_t before = me.issuer.communicators()->sequence();
    std::vector<at::Tensor> tensors{on(GetParam(), numbers(me.rank, kCount))};
    if (const auto work = me.all_reduce(tensors, /*async=*/true)) work->wait();
    EXPECT_TRUE(at::equal(back(tensors.front()), sum_of_numbers(2, kCount)));
    EXPECT_EQ(me.issuer.communicators()->sequence() - before, 7u);
  });
}

TEST_P(StagingOn, CallsWhoseTensorsAreDroppedAreExact) {
  on_members(2, GetParam(), [&](Member& me) {
    std::vector<at::Tensor> kept;
    for (int call = 0; call < 6; ++call) {
      std::vector<at::Tensor> tensors{on(GetParam(), numbers(me.rank + call, kCount))};
      const auto work = me.all_reduce(tensors, /*async=*/true);
      if (call % 2 == 0) kept.push_back(tensors.front());
    }
    me.issuer.settle();
    for (int call = 0; call < 6; call += 2)
      EXPECT_TRUE(at::equal(back(kept[static_cast<size_t>(call / 2)]),
                            numbers(call, kCount) + numbers(call + 1, kCount)));
  });
}

TEST_P(StagingOn, MessagesInSlicesAreExactWhicheverSideIsFirst) {
  on_members(2, GetParam(), [&](Member& me) {
    const int peer = 1 - me.rank;
    for (const int64_t count : {kCount, int64_t{32'768}, int64_t{10}}) {
      std::vector<at::Tensor> out{on(GetParam(), numbers(me.rank, count))};
      std::vector<at::Tensor> in{on(GetParam(), at::zeros({count}))};
      std::vector<c10::intrusive_ptr<Work>> works;
      if (me.rank == 0) works.push_back(me.issuer.issue(send(out, peer, 0)));
      works.push_back(me.issuer.issue(receive(in, peer, 0)));
      if (me.rank == 1) works.push_back(me.issuer.issue(send(out, peer, 0)));
      for (const auto& work : works) work->wait();
      EXPECT_TRUE(at::equal(back(in.front()), numbers(peer, count)));
    }
  });
}

TEST_P(StagingOn, UnevenExchangesAreExact) {
  on_members(3, GetParam(), [&](Member& me) {
    const auto rows = [](int from, int to) { return int64_t{40'000} * ((from + 2 * to) % 3); };
    std::vector<int64_t> sent, received;
    std::vector<at::Tensor> parts, expected;
    for (int peer = 0; peer < 3; ++peer) {
      sent.push_back(rows(me.rank, peer));
      received.push_back(rows(peer, me.rank));
      parts.push_back(numbers(me.rank * 3 + peer, sent.back()));
      expected.push_back(numbers(peer * 3 + me.rank, received.back()));
    }
    const at::Tensor input = on(GetParam(), at::cat(parts));
    const at::Tensor output = on(GetParam(), at::zeros_like(at::cat(expected)));
    const auto work =
        me.issuer.issue(all_to_all_single(output, input, received, sent, {}, {me.rank, me.size}));
    if (work) work->wait();
    EXPECT_TRUE(at::equal(back(output), at::cat(expected)));
  });
}

// Fails each copy of a call in turn: every rank raises, and everything is let go of.
TEST_P(StagingOn, EveryCopyMayFail) {
  for (int copies = 0; copies < 14; ++copies) {
    c10::weak_intrusive_ptr<c10::StorageImpl> failing =
        at::empty({0}).storage().getWeakStorageImpl();
    on_members(2, GetParam(), [&](Member& me) {
      std::vector<at::Tensor> tensors{on(GetParam(), numbers(me.rank, kCount))};
      if (me.rank == 0) {
        fail_copies_after(tensors.front(), copies);
        failing = tensors.front().storage().getWeakStorageImpl();
      }
      const std::string error =
          first_error(me, [&] { return me.all_reduce(tensors, /*async=*/true); });
      EXPECT_NE(error.find("the test fails this copy"), std::string::npos)
          << "rank " << me.rank << " after " << copies << " copies: " << error;
    });
    EXPECT_TRUE(failing.expired()) << copies;
  }
}

TEST_P(StagingOn, AnAbortAmongTheSlicesEndsTheCall) {
  for (int round = 0; round < 10; ++round) {
    on_members(2, GetParam(), [&](Member& me) {
      std::vector<at::Tensor> tensors{on(GetParam(), numbers(me.rank, kCount))};
      std::thread aborter;
      if (me.rank == 1)
        aborter = std::thread([&] {
          std::this_thread::sleep_for(std::chrono::microseconds(200 * round));
          me.communicator->abort("enough");
        });
      const std::string error = thrown_by([&] {
        for (int call = 0; call < 1000; ++call)
          if (const auto work = me.all_reduce(tensors, /*async=*/true)) work->wait();
      });
      EXPECT_NE(error.find("enough"), std::string::npos) << error;
      if (aborter.joinable()) aborter.join();
      me.issuer.settle();
      EXPECT_EQ(me.issuer.held().calls, 0u);
    });
  }
}

}  // namespace
}  // namespace hccl_like::testing
