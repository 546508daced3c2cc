#include "process_group/issue/pending.h"

#include <cmath>

#include "process_group/testing/members.h"

namespace hccl_like::testing {
namespace {

using Kind = Pending::Kind;

// An all_reduce of this host tensor, not launched.
std::shared_ptr<Pending> prepared(Member& me, Kind kind, const at::Tensor& tensor) {
  auto pending = std::make_shared<Pending>(kind, me.session, me.communicator);
  const Issue issue = all_reduce({tensor}, {});
  Buffers buffers(me.devices.access(c10::kCPU), *me.communicator, /*in_stream=*/false);
  const std::vector<at::Tensor> tensors{tensor};
  Request request = issue.requests.front();
  request.input.tensors = request.output.tensors = tensors;
  pending->add(me.communicator->prepare(buffers.call(request)));
  pending->hold(tensors);
  pending->hold(buffers);
  return pending;
}

TEST(Pending, IsOverWhenEveryRankHasCalled) {
  Gate waited;
  on_members(2, c10::kCPU, [&](Member& me) {
    if (me.rank == 1) waited.wait();
    const at::Tensor tensor = numbers(me.rank, 1000);
    const auto pending = prepared(me, Kind::kHost, tensor);
    EXPECT_FALSE(pending->begun());
    pending->launch(/*waited_for=*/true);
    EXPECT_TRUE(pending->begun());
    if (me.rank == 0) {
      EXPECT_FALSE(pending->wait(Deadline::after(std::chrono::milliseconds(20))));
      EXPECT_FALSE(pending->over());
      EXPECT_FALSE(pending->finish_if_over());
      EXPECT_FALSE(pending->failure().has_value());
      waited.open();
    }
    EXPECT_TRUE(pending->wait(Deadline::after(kLong)));
    EXPECT_TRUE(pending->over());
    EXPECT_FALSE(pending->finished());
    pending->finish();
    pending->finish();
    EXPECT_TRUE(pending->finished());
    EXPECT_TRUE(pending->operations().empty());
    EXPECT_GT(pending->duration().count(), 0);
    EXPECT_TRUE(at::equal(tensor, sum_of_numbers(2, 1000)));
  });
}

TEST(Pending, OneThreadMakesTheCopiesBackAndAllWaitForThem) {
  on_members(1, c10::kCPU, [&](Member& me) {
    for (int round = 0; round < 50; ++round) {
      const at::Tensor tensor = numbers(0, 100), to = at::zeros({100});
      const auto pending = prepared(me, Kind::kHost, tensor);
      pending->copy_back(to, tensor);
      pending->launch(/*waited_for=*/true);
      EXPECT_TRUE(pending->wait(Deadline::after(kLong)));
      std::vector<std::thread> threads;
      for (int i = 0; i < 4; ++i)
        threads.emplace_back([&, i] {
          if (i % 2 == 0)
            pending->finish();
          else
            while (!pending->finish_if_over()) std::this_thread::yield();
          EXPECT_TRUE(pending->finished());
          EXPECT_TRUE(at::equal(to, tensor));
        });
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(pending->temporary_bytes(), 0u);
    }
  });
}

TEST(Pending, InStreamOrderHasSucceededAlsoWhileAThreadFinishesIt) {
  on_members(1, c10::kCPU, [&](Member& me) {
    const auto pending = prepared(me, Kind::kStream, numbers(0, 100));
    Gate in_finish, seen;
    pending->when_final([&] {
      in_finish.open();
      seen.wait();
    });
    EXPECT_FALSE(pending->succeeded());
    Pending::run(pending.get());
    std::thread finisher([&] { pending->finish(); });
    in_finish.wait();
    EXPECT_FALSE(pending->finish_if_over());
    EXPECT_TRUE(pending->succeeded());
    seen.open();
    finisher.join();
    EXPECT_TRUE(pending->succeeded());
  });
}

TEST(Pending, KeepsTheFirstErrorAndCopiesNothingBack) {
  on_members(1, c10::kCPU, [&](Member& me) {
    const at::Tensor to = at::zeros({100});
    const auto pending = prepared(me, Kind::kHost, numbers(0, 100));
    pending->copy_back(to, at::ones({100}));
    pending->launch(/*waited_for=*/true);
    pending->fail({ErrorCode::kDevice, "first"});
    pending->fail({ErrorCode::kDevice, "second"});
    EXPECT_TRUE(pending->failing());
    EXPECT_TRUE(pending->wait(Deadline::after(kLong)));
    pending->finish();
    ASSERT_TRUE(pending->failure().has_value());
    EXPECT_EQ(pending->failure()->message, "first");
    EXPECT_TRUE(pending->untold_failure().has_value());
    pending->give_up_waiting();
    EXPECT_FALSE(pending->untold_failure().has_value());
    EXPECT_TRUE(at::equal(to, at::zeros({100})));
  });
}

TEST(Pending, ACopyBackThatFailsIsTheCallsError) {
  on_members(1, c10::kCPU, [&](Member& me) {
    const at::Tensor to = on(kBare, at::zeros({100}));
    fail_copies_after(to, 0);
    const auto pending = prepared(me, Kind::kHost, numbers(0, 100));
    pending->copy_back(to, at::ones({100}));
    pending->launch(/*waited_for=*/true);
    EXPECT_TRUE(pending->wait(Deadline::after(kLong)));
    pending->finish();
    ASSERT_TRUE(pending->failure().has_value());
    EXPECT_EQ(pending->failure()->code, ErrorCode::kDevice);
    EXPECT_EQ(pending->failure()->message,
              "the result could not be copied back: the test fails this copy");
  });
}

TEST(Pending, AStagedCallIsOverAfterTheSlicesOfAllItsParts) {
  on_members(1, c10::kCPU, [&](Member& me) {
    const auto pending = std::make_shared<Pending>(Kind::kStaged, me.session, me.communicator);
    const auto operation = me.communicator->prepare({.collective = Collective::kBarrier});
    pending->add_slice(operation);
    pending->expect_slices(2);
    EXPECT_EQ(pending->sequence(), operation->sequence());
    EXPECT_FALSE(pending->launches());
    pending->begin();
    me.communicator->launch(pending->operations(), /*waited_for=*/true);
    EXPECT_TRUE(me.communicator->engine().wait(pending->operations(), Deadline::after(kLong)));
    pending->end_slices();
    EXPECT_FALSE(pending->over());
    EXPECT_FALSE(pending->wait(Deadline::after(std::chrono::milliseconds(1))));
    std::thread last([&] { pending->end_slices(); });
    EXPECT_TRUE(pending->wait(Deadline::after(kLong)));
    last.join();
    EXPECT_TRUE(pending->over());
    pending->finish();
    EXPECT_FALSE(pending->failure().has_value());
  });
}

TEST(Pending, InStreamOrderAFailedCallSpoilsItsOutputs) {
  Gate aborted;
  on_members(2, c10::kCPU, [&](Member& me) {
    if (me.rank == 1) return aborted.wait();  // calls nothing
    const at::Tensor tensor = numbers(0, 1000);
    const auto pending = prepared(me, Kind::kStream, tensor);
    std::thread stream([&] { Pending::run(pending.get()); });
    EXPECT_FALSE(pending->over());
    pending->abort("the test is over");
    EXPECT_TRUE(pending->wait(Deadline::after(kLong)));
    stream.join();
    pending->finish();
    ASSERT_TRUE(pending->failure().has_value());
    EXPECT_NE(pending->failure()->message.find("the test is over"), std::string::npos);
    EXPECT_TRUE(at::isnan(tensor).all().item<bool>());
    aborted.open();
  });
}

TEST(Pending, InStreamOrderAStreamMayKeepTheTensorsInPlaceOfTheCall) {
  on_members(1, c10::kCPU, [&](Member& me) {
    at::Tensor tensor = numbers(0, 10);
    const auto pending = prepared(me, Kind::kStream, tensor);
    EXPECT_EQ(tensor.use_count(), 2u);
    pending->let_go_of_tensors();
    EXPECT_EQ(tensor.use_count(), 1u);
    ASSERT_EQ(pending->storages().size(), 1u);
    EXPECT_FALSE(pending->storages().front().expired());
    Pending::run(pending.get());
    tensor.reset();
    EXPECT_TRUE(pending->storages().front().expired());
    pending->end();
    EXPECT_TRUE(pending->storages().empty());
  });
}

}  // namespace
}  // namespace hccl_like::testing
