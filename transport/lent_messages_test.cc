// Messages that are short enough to travel unasked, and which their receivers copy out of the sender's memory instead.
#include <gtest/gtest.h>

#include "transport/rendezvous.h"
#include "transport/shared_links.h"

namespace hccl_like {
namespace {

class LentMessages : public SharedLinks {
 protected:
  static constexpr size_t kEager = 256 << 10;
  static constexpr size_t kBytes = kEager - 5;

  LentMessages() : SharedLinks({.eager_bytes = kEager}) {}

  template <class Early, class Late>
  void post_in_order(Early early, Late late) {
    early();
    for (int i = 0; i < 50; ++i) a().progress(), b().progress();
    late();
  }
};

TEST_F(LentMessages, AreCopiedByTheirReceiverAloneWhoeverIsFirst) {
  uint32_t number = 0;
  for (const size_t bytes : {kLeastMapped, kLeastMapped + 1, kBytes, kEager})
    for (const bool send_first : {true, false}) {
      Shared from(bytes), into(bytes);
      from.fill(++number);
      const auto sends = [&] { send(0, number, from); };
      const auto receives = [&] { recv(1, number, into); };
      send_first ? post_in_order(sends, receives) : post_in_order(receives, sends);
      a().progress();
      exhaust(b());
      EXPECT_TRUE(into.holds(number)) << bytes << " bytes, the sender first: " << send_first;
      EXPECT_TRUE(recvs_.back().done);
      EXPECT_FALSE(sends_.back().done) << "inside progress() only";
      EXPECT_FALSE(a().flushed()) << "the receiver needed this memory until now";
      run();
      EXPECT_TRUE(a().flushed());
    }
}

TEST_F(LentMessages, ShorterOnesAndPrivateOnesTravelUnasked) {
  for (const size_t bytes : {kLeastMapped - 1, kBytes}) {
    const bool shown = bytes < kLeastMapped;
    Shared from(bytes), into(bytes);
    from.fill(bytes);
    const auto sequence = static_cast<uint32_t>(bytes);
    send(0, sequence, from, shown);
    while (!sends_.back().done) a().progress(), b().progress();
    std::memset(from.data(), 0, bytes);
    recv(1, sequence, into);
    run();
    EXPECT_TRUE(into.holds(bytes));
  }
}

TEST_F(LentMessages, GoThroughTheWireIfTheReceiverDeclines) {
  uint32_t number = 0;
  for (const bool send_first : {true, false})
    for (const bool broken : {true, false}) {
      Shared from(kBytes), into(kBytes);
      from.fill(++number);
      // Memory that it cannot map, or its own is private.
      if (broken) std::memset(&from.range().handle, 0xab, sizeof from.range().handle);
      const auto sends = [&] { send(0, number, from); };
      const auto receives = [&] { recv(1, number, into, /*shown=*/broken); };
      send_first ? post_in_order(sends, receives) : post_in_order(receives, sends);
      run();
      EXPECT_TRUE(into.holds(number)) << send_first << broken;
      EXPECT_TRUE(a().flushed());
    }
}

TEST_F(LentMessages, OfSendersThatSendMoreUnaskedThanTheirPeersAreTakenToo) {
  for (const size_t lender : {size_t{0}, size_t{1}}) {
    links_[0].reset(), links_[1].reset();
    wires_ = make_shm_pair(64 << 10);
    for (size_t end : {size_t{0}, size_t{1}})
      links_[end] = std::make_unique<Link>(std::move(wires_.ends[end]),
                                           LinkOptions{.eager_bytes = end == 0 ? kEager : 1024});
    Shared from(kBytes), into(kBytes);
    from.fill(lender);
    // One that sends less unasked asks at once.
    recv(1 - lender, 1, into);
    for (int i = 0; i < 50; ++i) a().progress(), b().progress();
    send(lender, 1, from);
    run();
    EXPECT_TRUE(into.holds(lender));
  }
}

TEST_F(LentMessages, MoreThanThereAreSlotsBothWays) {
  constexpr uint32_t kMessages = 60;
  std::deque<Shared> from, into;
  for (uint32_t i = 0; i < kMessages; ++i) {
    from.emplace_back(kLeastMapped + i).fill(i);
    into.emplace_back(kLeastMapped + i);
    send(i % 2, i, from.back());
  }
  for (uint32_t i = kMessages; i-- > 0;) recv(1 - i % 2, i, into[i]);
  run();
  for (uint32_t i = 0; i < kMessages; ++i) EXPECT_TRUE(into[i].holds(i)) << i;
}

TEST_F(LentMessages, AMismatchIsTheReceiversAndTheSenderIsFreeWhenItGivesUp) {
  Shared from(kBytes), into(kBytes - 1);
  from.fill(1);
  send(0, 1, from);
  recv(1, 1, into);
  exhaust(a());
  exhaust(b());
  const auto mismatch = b().take_mismatch();
  ASSERT_TRUE(mismatch);
  EXPECT_EQ(mismatch->expected_bytes, kBytes - 1);
  EXPECT_EQ(mismatch->received_bytes, kBytes);
  for (int i = 0; i < 50; ++i) a().progress(), b().progress();
  EXPECT_FALSE(sends_.back().done);
  EXPECT_EQ(b().failure(), nullptr);
  a().cancel(7);
  EXPECT_TRUE(a().flushed());
  EXPECT_TRUE(into.holds_only(std::byte{0xee}));
}

// ------------------------------------------------------------------------- messages that their callers' threads move

TEST_F(LentMessages, PassIfBothAreThere) {
  uint32_t number = 0;
  for (const size_t bytes : {kLeastMapped, kBytes})
    for (const bool send_first : {true, false}) {
      Shared from(bytes), into(bytes);
      from.fill(++number);
      const auto sends = [&] { pass_send(0, number, from); };
      const auto receives = [&] { pass_recv(1, number, into); };
      send_first ? post_in_order(sends, receives) : post_in_order(receives, sends);
      Send& send = sends_.back();
      Recv& recv = recvs_.back();
      for (int i = 0; i < 50 && pending_ > 0; ++i) a().progress(send), b().progress(recv);
      EXPECT_TRUE(withdraw(0, send) && withdraw(1, recv));
      EXPECT_TRUE(into.holds(number)) << bytes << " bytes, the sender first: " << send_first;
      EXPECT_TRUE(a().flushed());
    }
}

TEST_F(LentMessages, TakenBackStayLentUntilTheNextOfTheirTag) {
  for (int before = 0; before < 12; ++before)
    for (int between = 0; between < 12; ++between) {
      const auto number = static_cast<uint32_t>(before * 12 + between);
      Shared from(kBytes), into(kBytes);
      from.fill(number);
      Send& first = pass_send(0, number, from);
      recv(1, number, into);
      const auto steps = [&](int count) {
        for (int i = 0; i < count; ++i) i % 2 == 0 ? a().progress() : b().progress();
      };
      steps(before);
      if (withdraw(0, first)) continue;
      EXPECT_FALSE(a().flushed());
      steps(between);
      EXPECT_FALSE(first.done);
      first = {};  // it is its owner's again
      send(0, number, from);
      run();
      EXPECT_TRUE(into.holds(number)) << before << " steps before, " << between << " between";
      EXPECT_TRUE(a().flushed());
    }
}

TEST_F(LentMessages, TakenBackKeepTheirPlaceWhileOthersAreSent) {
  for (const bool received : {false, true}) {
    connect();
    Shared from(kBytes), into(kBytes), other_from(kBytes), other_into(kBytes);
    from.fill(1);
    other_from.fill(2);
    Send& first = pass_send(0, 1, from);
    exhaust(a());
    ASSERT_FALSE(withdraw(0, first));
    first = {};
    EXPECT_TRUE(a().prepare_sleep()) << "nothing is to be done before its next comes";
    a().end_sleep();
    if (received) {
      recv(1, 1, into);
      exhaust(b());
      EXPECT_TRUE(recvs_.back().done);
    }
    send(0, 2, other_from);
    recv(1, 2, other_into);
    run();
    EXPECT_TRUE(other_into.holds(2));
    if (!received) recv(1, 1, into);
    send(0, 1, from);
    run();
    EXPECT_TRUE(into.holds(1));
    EXPECT_TRUE(a().flushed());
  }
}

// The receiver finds what is lent no more, in a receive of either kind, and keeps nothing of it.
TEST_F(LentMessages, TakenBackAndGivenUpAreNotReadByWhoComesLater) {
  for (const bool passing : {false, true}) {
    connect();
    Shared from(kBytes), into(kBytes), next(kBytes);
    from.fill(1);
    Send& first = pass_send(0, 1, from);
    exhaust(a());
    ASSERT_FALSE(withdraw(0, first));
    a().cancel(7);
    EXPECT_TRUE(a().flushed());
    from.fill(2);
    Recv& late = passing ? pass_recv(1, 1, into) : recv(1, 1, into);
    exhaust(b());
    EXPECT_FALSE(late.done);
    EXPECT_TRUE(into.holds_only(std::byte{0xee}));
    if (passing) {
      EXPECT_FALSE(withdraw(1, late));
    } else {
      b().cancel(7);
      --pending_;
    }
    late = {};
    for (uint32_t number = 10; number < 40; ++number) {
      send(0, number, from);
      recv(1, number, next);
      run();
      EXPECT_TRUE(next.holds(2)) << "message " << number;
      EXPECT_TRUE(into.holds_only(std::byte{0xee}));
    }
  }
}

TEST_F(LentMessages, AReceiveThatIsTakenBackHasAllOrNothing) {
  bool all = false, nothing = false;
  for (const bool send_first : {true, false})
    for (uint32_t steps = 0; steps < 12; ++steps) {
      Shared from(kBytes), first(kBytes), second(kBytes);
      from.fill(steps);
      const uint32_t number = 2 * steps + (send_first ? 1 : 0);
      Recv* passing = nullptr;
      const auto sends = [&] { send(0, number, from); };
      const auto receives = [&] { passing = &pass_recv(1, number, first); };
      if (send_first)
        sends(), receives();
      else
        receives(), sends();
      for (uint32_t i = 0; i < steps; ++i)
        if (i % 2 == 0)
          a().progress();
        else
          b().progress(*passing);
      const bool done = withdraw(1, *passing);
      EXPECT_TRUE(done ? first.holds(steps) : first.holds_only(std::byte{0xee})) << steps;
      if (!done) recv(1, number, second);
      run();
      EXPECT_TRUE((done ? first : second).holds(steps)) << steps;
      all |= done;
      nothing |= !done;
    }
  EXPECT_TRUE(all && nothing);
}

TEST_F(LentMessages, ThatCannotBeReachedAreLeftToTheNext) {
  uint32_t number = 0;
  for (const bool send_first : {true, false})
    for (const bool broken : {true, false}) {
      Shared from(kBytes), into(kBytes);
      from.fill(++number);
      if (broken) std::memset(&from.range().handle, 0xab, sizeof from.range().handle);
      const auto sends = [&] { pass_send(0, number, from); };
      const auto receives = [&] { pass_recv(1, number, into); };
      const auto receives_in_private = [&] {
        Recv& message = recvs_.emplace_back();
        post(1, message, message.into, number, into, /*shown=*/false, /*passing=*/true);
      };
      const auto second = [&] { broken ? receives() : receives_in_private(); };
      send_first ? post_in_order(sends, second) : post_in_order(second, sends);
      for (int i = 0; i < 50; ++i) a().progress(), b().progress();
      EXPECT_FALSE(withdraw(1, recvs_.back()));
      // The next one declines, and hears of the message when it is posted for good.
      recv(1, number, into, /*shown=*/broken);
      for (int i = 0; i < 50; ++i) a().progress(), b().progress();
      EXPECT_FALSE(recvs_.back().done);
      EXPECT_FALSE(withdraw(0, sends_.back()));
      for (int i = 0; i < 50; ++i) a().progress(), b().progress();
      EXPECT_FALSE(recvs_.back().done);
      send(0, number, from);
      run();
      EXPECT_TRUE(into.holds(number)) << send_first << broken;
      EXPECT_TRUE(a().flushed());
    }
}

TEST_F(LentMessages, TakenBackAndGivenUpAreLeftAloneByThePeer) {
  const auto post_both = [&](Shared& from, Shared& into, int steps) {
    Send& passing = pass_send(0, 1, from);
    recv(1, 1, into);
    for (int i = 0; i < steps / 2; ++i) links_[i % 2]->progress();
    withdraw(0, passing);
  };
  give_up_after_every_step(kBytes, post_both, [] {});
}

TEST_F(LentMessages, WhatWasGivenUpIsLeftAloneByThePeer) {
  const auto post_both = [&](Shared& from, Shared& into, int) {
    send(0, 1, from);
    recv(1, 1, into);
  };
  give_up_after_every_step(kBytes, post_both, [] {});
}

}  // namespace
}  // namespace hccl_like
