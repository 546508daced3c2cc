#include "process_group/issue/issuer.h"

#include "process_group/testing/members.h"

namespace hccl_like::testing {
namespace {

class IssuerOn : public ::testing::TestWithParam<c10::Device> {};
INSTANTIATE_TEST_SUITE_P(Device, IssuerOn, ::testing::Values(c10::kCPU, kBare, kStreams),
                         device_name);

TEST_P(IssuerOn, CallsAreExact) {
  on_members(3, GetParam(), [&](Member& me) {
    for (const int64_t count : {1, 1000, 100'003})
      for (const bool async : {false, true}) {
        std::vector<at::Tensor> tensors{on(GetParam(), numbers(me.rank, count))};
        const auto work = me.all_reduce(tensors, async);
        EXPECT_TRUE(work || !async);
        if (work) work->wait();
        EXPECT_TRUE(at::equal(back(tensors.front()), sum_of_numbers(3, count)));
      }
  });
}

TEST_P(IssuerOn, ABlockIsOneWork) {
  Gate checked;
  on_members(2, GetParam(), [&](Member& me) {
    std::vector<at::Tensor> first{on(GetParam(), numbers(me.rank, 100))};
    std::vector<at::Tensor> second{on(GetParam(), numbers(me.rank, 50'000))};
    if (me.rank == 1) checked.wait();
    me.issuer.begin_block();
    EXPECT_TRUE(me.issuer.in_block());
    me.all_reduce(first, /*async=*/true);
    me.all_reduce(second, /*async=*/true);
    EXPECT_EQ(me.issuer.held().calls, 0u);
    if (me.rank == 0) checked.open();
    const auto work = me.issuer.end_block();
    EXPECT_FALSE(me.issuer.in_block());
    ASSERT_NE(work, nullptr);
    work->wait();
    EXPECT_TRUE(at::equal(back(first.front()), sum_of_numbers(2, 100)));
    EXPECT_TRUE(at::equal(back(second.front()), sum_of_numbers(2, 50'000)));
  });
}

TEST_P(IssuerOn, HoldsAsynchronousCallsUntilTheyAreOver) {
  Gate checked;
  on_members(2, GetParam(), [&](Member& me) {
    if (me.rank == 1) checked.wait();
    std::vector<c10::intrusive_ptr<Work>> works;
    std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages;
    for (int call = 0; call < 3; ++call) {
      std::vector<at::Tensor> tensors{on(GetParam(), numbers(me.rank, 1000))};
      storages.push_back(tensors.front().storage().getWeakStorageImpl());
      works.push_back(me.all_reduce(tensors, /*async=*/true));
    }
    if (me.rank == 0) {
      EXPECT_EQ(me.issuer.held().calls, 3u);
      for (const auto& storage : storages) EXPECT_FALSE(storage.expired());
      checked.open();
    }
    works.clear();  // a program may drop them
    me.issuer.settle();
    EXPECT_EQ(me.issuer.held().calls, 0u);
    EXPECT_EQ(me.issuer.held().temporary_bytes, 0u);
    for (const auto& storage : storages) EXPECT_TRUE(storage.expired());
  });
}

TEST_P(IssuerOn, CloseAbortsWhatDoesNotEnd) {
  Gate closed;
  on_members(2, GetParam(), [&](Member& me) {
    if (me.rank == 1) return closed.wait();  // calls nothing
    std::vector<at::Tensor> tensors{on(GetParam(), numbers(0, 1000))};
    const auto work = me.all_reduce(tensors, /*async=*/true);
    me.issuer.close(std::chrono::milliseconds(20));
    EXPECT_TRUE(work->isCompleted());
    EXPECT_FALSE(work->isSuccess());
    EXPECT_NE(thrown_by([&] { work->wait(); }).find("closed while calls were running"),
              std::string::npos);
    EXPECT_NE(thrown_by([&] { me.all_reduce(tensors, /*async=*/false); }).find("was destroyed"),
              std::string::npos);
    EXPECT_EQ(me.issuer.session(), nullptr);
    me.issuer.close({});
    closed.open();
  });
}

TEST_P(IssuerOn, ACopyThatFailsFailsTheGroupOnAllRanks) {
  if (GetParam().is_cpu()) return;  // whose memory is not copied
  on_members(2, GetParam(), [&](Member& me) {
    std::vector<at::Tensor> tensors{on(GetParam(), numbers(me.rank, 1000))};
    if (me.rank == 0) fail_copies_after(tensors.front(), 0);
    const auto call = [&] { return me.all_reduce(tensors, /*async=*/false); };
    const std::string error = first_error(me, call);
    EXPECT_NE(error.find("the test fails this copy"), std::string::npos) << error;
    EXPECT_FALSE(first_error(me, call).empty());
  });
}

TEST_P(IssuerOn, AnOperatorThatTheDeviceLacksDoesNotFailTheGroup) {
  if (GetParam().is_cpu()) return;
  on_members(2, GetParam(), [&](Member& me) {
    std::vector<at::Tensor> lacking{
        at::empty({10}, at::dtype(at::kComplexDouble).device(GetParam()))};
    std::vector<at::Tensor> tensors{on(GetParam(), numbers(me.rank, 1000))};
    EXPECT_EQ(thrown_by([&] { me.all_reduce(lacking, /*async=*/false); }), "no copy of complex128");
    if (const auto work = me.all_reduce(tensors, /*async=*/true)) work->wait();
    EXPECT_TRUE(at::equal(back(tensors.front()), sum_of_numbers(2, 1000)));
  });
}

TEST_P(IssuerOn, MessagesOfSeveralPeersDoNotWaitForEachOther) {
  on_members(3, GetParam(), [&](Member& me) {
    std::vector<std::vector<at::Tensor>> out, in;
    std::vector<c10::intrusive_ptr<Work>> works;
    for (int i = 1; i < 3; ++i) {
      const int peer = (me.rank + i) % 3;
      out.push_back({on(GetParam(), numbers(me.rank * 3 + peer, 40'000))});
      in.push_back({on(GetParam(), at::zeros({40'000}))});
    }
    for (int i = 2; i-- > 0;)
      works.push_back(
          me.issuer.issue(receive(in[static_cast<size_t>(i)], (me.rank + i + 1) % 3, 5)));
    for (int i = 0; i < 2; ++i)
      works.push_back(me.issuer.issue(send(out[static_cast<size_t>(i)], (me.rank + i + 1) % 3, 5)));
    for (const auto& work : works) work->wait();
    for (int i = 0; i < 2; ++i) {
      const int peer = (me.rank + i + 1) % 3;
      EXPECT_TRUE(
          at::equal(back(in[static_cast<size_t>(i)].front()), numbers(peer * 3 + me.rank, 40'000)));
    }
  });
}

}  // namespace
}  // namespace hccl_like::testing
