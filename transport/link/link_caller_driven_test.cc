// Messages that are taken back: a receive that only looks, a send that does not wait.
#include <gtest/gtest.h>

#include <cstring>

#include "transport/link/link.h"
#include "transport/testing/sim_wire.h"
#include "transport/testing/wire_contract.h"

namespace hccl_like {
namespace {

class CallerDriven : public testing::Test {
 protected:
  static constexpr Tag kTag{.communicator = 5, .sequence = 3};
  static constexpr size_t kEager = 1024;

  explicit CallerDriven(SimOptions options = {.capacity = 256, .chunk = 7})
      : pair_(make_sim_pair(options)),
        a_(std::move(pair_.a), {.eager_bytes = kEager}),
        b_(std::move(pair_.b), {.eager_bytes = kEager}) {}

  // `into` or `from` is what the message owns of the two.
  template <class OneEnd>
  OneEnd& post(Link& link, OneEnd& message, Pieces& pieces, std::vector<std::byte>& data) {
    pieces.clear();
    // Two pieces, so that both are walked.
    pieces.add(data.data(), data.size() / 3);
    pieces.add(data.data() + data.size() / 3, data.size() - data.size() / 3);
    message.tag = kTag;
    message.bytes = data.size();
    message.done = false;
    message.pending = &pending_;
    link.post(message);
    return message;
  }
  Send& post_send(std::vector<std::byte>& data) { return post(a_, send_, send_.from, data); }
  Recv& post_recv(std::vector<std::byte>& data, bool caller_driven) {
    recv_.caller_driven = caller_driven;
    return post(b_, recv_, recv_.into, data);
  }
  void settle() {
    for (int i = 0; i < 2000; ++i) {
      a_.progress();
      b_.progress();
    }
  }

  SimPair pair_;
  Link a_, b_;
  Send send_;
  Recv recv_;
  uint32_t pending_ = 0;
};

TEST_F(CallerDriven, AReceiveTakesWhatIsThere) {
  auto data = stream_bytes(0, 900);
  std::vector<std::byte> got(900);
  post_send(data);
  settle();
  post_recv(got, /*caller_driven=*/true);
  b_.progress();
  EXPECT_TRUE(b_.withdraw(recv_));
  EXPECT_TRUE(got == data);
}

TEST_F(CallerDriven, AReceiveThatWasTakenBackLeavesTheMessageToTheNext) {
  auto data = stream_bytes(0, 900);
  std::vector<std::byte> first(900), second(900);
  // Taken back before anything came, after any number of its bytes, and when all is there.
  for (int steps = 0; steps < 400; ++steps) {
    post_recv(first, true);
    post_send(data);
    for (int i = 0; i < steps; ++i) {
      a_.progress();
      b_.progress();
    }
    const bool done = b_.withdraw(recv_);
    EXPECT_EQ(done, recv_.done);
    if (!done) {
      std::ranges::fill(first, std::byte{0xee});  // it is the caller's again
      post_recv(second, false);
      settle();
      EXPECT_TRUE(recv_.done);
    }
    ASSERT_TRUE((done ? first : second) == data) << "after " << steps;
    settle();
  }
}

TEST_F(CallerDriven, AReceiveDoesNotAskForALongMessage) {
  auto data = stream_bytes(0, 5000);
  std::vector<std::byte> got(5000);
  for (const bool announced : {false, true}) {
    if (announced) post_send(data);
    settle();
    post_recv(got, true);
    if (!announced) post_send(data);
    settle();
    EXPECT_FALSE(send_.done);
    EXPECT_FALSE(b_.withdraw(recv_));
    size_t bytes = 0;
    EXPECT_TRUE(b_.arrived(kTag, &bytes));
    EXPECT_EQ(bytes, data.size());
    post_recv(got, false);
    settle();
    EXPECT_TRUE(send_.done && recv_.done);
    EXPECT_TRUE(got == data);
    std::ranges::fill(got, std::byte{0});
  }
}

TEST_F(CallerDriven, AReceiveTellsADisagreement) {
  auto data = stream_bytes(0, 10);
  std::vector<std::byte> got(11, std::byte{7});
  for (const bool first : {false, true}) {
    if (first) post_recv(got, true);
    post_send(data);
    settle();
    if (!first) post_recv(got, true);
    settle();
    EXPECT_TRUE(b_.has_news());
    EXPECT_FALSE(b_.withdraw(recv_));
    EXPECT_EQ(b_.take_mismatch()->received_bytes, 10u);
    EXPECT_FALSE(b_.has_news());
  }
  EXPECT_EQ(got, std::vector(11, std::byte{7}));
}

TEST_F(CallerDriven, ASendIsTakenBackWholeOrCountsAsSent) {
  for (int steps = 0; steps < 200; ++steps) {
    auto data = stream_bytes(0, 900);
    const auto copy = data;
    std::vector<std::byte> got(900);
    post_send(data);
    for (int i = 0; i < steps; ++i) {
      a_.progress();
      if (steps % 2 == 0) b_.progress();
    }
    const bool sent = a_.withdraw(send_);
    EXPECT_EQ(sent, send_.done);
    EXPECT_EQ(sent, steps > 0);
    std::ranges::fill(data, std::byte{0xee});
    if (!sent) {
      settle();
      size_t bytes = 0;
      EXPECT_FALSE(b_.arrived(kTag, &bytes));
      data = copy;
      post_send(data);
    }
    post_recv(got, false);
    settle();
    ASSERT_TRUE(got == copy) << "after " << steps;
  }
}

TEST_F(CallerDriven, AReceiveReadsNoFurtherThanItsOwnMessage) {
  auto first = stream_bytes(0, 50), second = stream_bytes(50, 50);
  std::vector<std::byte> got(50);
  Send next;
  post_send(first);
  post(a_, next, next.from, second).tag.sequence = 4;
  for (int i = 0; i < 100; ++i) a_.progress();
  post_recv(got, true);
  while (!recv_.done) b_.progress(recv_);
  EXPECT_TRUE(got == first);
  size_t bytes = 0;
  EXPECT_FALSE(b_.arrived({.communicator = 5, .sequence = 4}, &bytes));
  settle();
  EXPECT_TRUE(b_.arrived({.communicator = 5, .sequence = 4}, &bytes));
}

TEST_F(CallerDriven, ASendReadsOnlyIfTheWireIsFull) {
  auto data = stream_bytes(0, 50), back = stream_bytes(9, 50);
  Send other;
  post(b_, other, other.from, back);
  for (int i = 0; i < 100; ++i) b_.progress();
  post_send(data);
  while (!send_.done) a_.progress(send_);
  size_t bytes = 0;
  EXPECT_FALSE(a_.arrived(kTag, &bytes));
  auto large = stream_bytes(0, 1000);
  post_send(large);
  while (!send_.done && !a_.arrived(kTag, &bytes)) a_.progress(send_);
  EXPECT_FALSE(send_.done) << "the wire takes 256 bytes, and nobody reads";
}

}  // namespace
}  // namespace hccl_like
