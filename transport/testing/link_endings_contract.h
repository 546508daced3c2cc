#pragma once
// Conformance tests for Link: mismatches, cancellation and loss of the peer.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/testing/link_pair.h"

namespace hccl_like {

template <class Wires>
class LinkEndings : public LinkPair<Wires> {};
TYPED_TEST_SUITE_P(LinkEndings);

TYPED_TEST_P(LinkEndings, CancelInTheMiddleLeavesTheOtherCommunicatorsAlone) {
  for (const size_t canceller : {0u, 1u}) {
    this->connect({.eager_bytes = this->kEager}, {.eager_bytes = this->kEager});
    this->pending = 0;
    auto doomed = stream_bytes(0, 3 << 20), got_doomed = this->fresh(doomed.size());
    auto other = stream_bytes(9, this->kLong), got_other = this->fresh(this->kLong);
    auto small = stream_bytes(1, 50), got_small = this->fresh(50);
    this->recv(this->b(), this->tag(1, 66), got_doomed.data(), doomed.size());
    Send& half = this->send(this->a(), this->tag(1, 66), doomed.data(), doomed.size());
    this->send(this->a(), this->tag(2, 66), small.data(), 50);
    this->run([&] { return this->begun(half, got_doomed); });
    this->pending = 0;
    this->links[canceller]->cancel(66);
    this->links[canceller]->send_abort(66, "enough");
    std::vector<std::byte>& freed = canceller == 0 ? doomed : got_doomed;
    freed.assign(freed.size(), std::byte{0xdd});
    std::optional<AbortNotice> notice;
    this->run([&] { return (notice = this->links[1 - canceller]->take_abort()).has_value(); });
    EXPECT_EQ(notice->communicator, 66u);
    EXPECT_EQ(notice->reason, "enough");
    this->links[1 - canceller]->cancel(66);
    if (canceller == 1) {
      EXPECT_TRUE(got_doomed == std::vector<std::byte>(doomed.size(), std::byte{0xdd}));
    } else {
      for (size_t i = 0; i < got_doomed.size(); ++i)
        ASSERT_TRUE(got_doomed[i] == stream_byte(i) || got_doomed[i] == std::byte{0xee})
            << "wrong bytes after a cancelled send";
    }
    this->pending = 0;
    this->recv(this->b(), this->tag(1), got_other.data(), other.size());
    this->send(this->a(), this->tag(1), other.data(), other.size());
    this->recv(this->b(), this->tag(2), got_small.data(), 50);
    this->send(this->a(), this->tag(2), small.data(), 50);
    this->run_until_done();
    EXPECT_TRUE(got_other == other);
    EXPECT_TRUE(got_small == small);
    size_t bytes;
    EXPECT_FALSE(this->b().arrived(this->tag(2, 66), &bytes)) << "dropped";
    EXPECT_EQ(this->a().failure(), nullptr);
    EXPECT_EQ(this->b().failure(), nullptr);
    this->run([&] { return this->a().flushed(); });
    this->run([&] { return this->b().flushed(); });
  }
}

TYPED_TEST_P(LinkEndings, CancelAtEveryMomentOfAnExchange) {
  for (int moment = 0; moment < 40; ++moment) {
    this->connect({.eager_bytes = this->kEager}, {.eager_bytes = this->kEager});
    std::vector<std::vector<std::byte>> buffers;
    buffers.reserve(100);
    for (uint32_t i = 0; i < 10; ++i) {
      const size_t bytes = i % 2 == 0 ? 700 : 400'000;
      for (size_t side : {0u, 1u}) {
        for (uint64_t communicator : {66u, 67u}) {
          std::byte* out = buffers.emplace_back(stream_bytes(i, bytes)).data();
          std::byte* in = buffers.emplace_back(this->fresh(bytes)).data();
          this->send(*this->links[side], this->tag(i, communicator), out, bytes);
          this->recv(*this->links[1 - side], this->tag(i, communicator), in, bytes);
        }
      }
    }
    for (int i = 0; i < moment; ++i) this->step();
    const size_t first = static_cast<size_t>(moment) % 2;
    // From here on, only messages of the other communicator matter.
    uint32_t lost = 0, left = 0;
    const auto redirect = [&](Message& message) {
      if (message.pending != &this->pending || message.moved == message.bytes) return;
      message.pending = message.tag.communicator == 66 ? &lost : &left;
      (message.tag.communicator == 66 ? lost : left) += 1;
    };
    for (auto& message : this->sends) redirect(message);
    for (auto& message : this->recvs) redirect(message);
    this->links[first]->cancel(66);
    for (int i = 0; i < moment % 5; ++i) this->step();
    this->links[1 - first]->cancel(66);
    this->run([&] { return left == 0; });
    for (size_t i = 0; i < buffers.size(); i += 4)
      ASSERT_TRUE(buffers[i + 3] == buffers[i + 2]) << "moment " << moment;
    ASSERT_EQ(this->a().failure(), nullptr);
    ASSERT_EQ(this->b().failure(), nullptr);
    this->pending = 0;
    this->sends.clear();
    this->recvs.clear();
    this->links[0].reset();
    this->links[1].reset();
  }
}

TYPED_TEST_P(LinkEndings, ReportsADifferentFingerprint) {
  uint32_t number = 0;
  for (const size_t bytes : {size_t{100}, this->kEager + 1}) {
    for (const bool early : {false, true}) {
      auto data = stream_bytes(0, bytes), got = this->fresh(bytes);
      const Tag tag = this->tag(++number);
      if (!early) this->recv(this->b(), tag, got.data(), bytes, 5);
      this->settle();
      this->send(this->a(), tag, data.data(), bytes, 6);
      this->settle();
      if (early) this->recv(this->b(), tag, got.data(), bytes, 5);
      std::optional<Link::Mismatch> mismatch;
      this->run([&] { return (mismatch = this->b().take_mismatch()).has_value(); });
      EXPECT_EQ(mismatch->tag, tag);
      EXPECT_EQ(mismatch->expected, 5u);
      EXPECT_EQ(mismatch->received, 6u);
      EXPECT_EQ(mismatch->expected_bytes, bytes);
      EXPECT_EQ(mismatch->received_bytes, bytes);
      EXPECT_TRUE(got == this->fresh(bytes)) << "the buffer must not be touched";
      if (bytes > this->kEager) {
        this->run([&] { return (mismatch = this->a().take_mismatch()).has_value(); });
        EXPECT_EQ(mismatch->expected, 6u);
        EXPECT_EQ(mismatch->received, 5u);
      }
    }
  }
  this->settle();
  EXPECT_FALSE(this->a().take_mismatch().has_value());
  EXPECT_FALSE(this->b().take_mismatch().has_value()) << "each once";
  EXPECT_EQ(this->b().failure(), nullptr) << "other communicators are not concerned";
  this->a().cancel(this->kCommunicator);
  this->b().cancel(this->kCommunicator);
  this->pending = 0;
  auto data = stream_bytes(0, this->kLong), got = this->fresh(this->kLong);
  this->send(this->a(), this->tag(1, 2), data.data(), data.size());
  this->recv(this->b(), this->tag(1, 2), got.data(), got.size());
  this->run_until_done();
  EXPECT_TRUE(got == data);
}

TYPED_TEST_P(LinkEndings, ReportsADifferentSize) {
  const size_t small = 100, large = this->kEager + 100;
  uint32_t number = 0;
  for (const auto& [sent, expected] :
       {std::pair{small, large}, std::pair{large, small}, std::pair{small, small + 1},
        std::pair{large, large + 1}, std::pair{size_t{0}, large}, std::pair{size_t{0}, small}}) {
    for (const bool early : {false, true}) {
      auto data = stream_bytes(0, sent), got = this->fresh(expected);
      const Tag tag = this->tag(++number);
      if (!early) this->recv(this->b(), tag, got.data(), expected);
      this->settle();
      this->send(this->a(), tag, data.data(), sent);
      this->settle();
      if (early) this->recv(this->b(), tag, got.data(), expected);
      std::optional<Link::Mismatch> mismatch;
      this->run([&] { return (mismatch = this->b().take_mismatch()).has_value(); });
      EXPECT_EQ(mismatch->expected_bytes, expected);
      EXPECT_EQ(mismatch->received_bytes, sent);
      EXPECT_TRUE(got == this->fresh(expected)) << "the buffer must not be touched";
      if (sent > this->kEager) {
        this->run([&] { return (mismatch = this->a().take_mismatch()).has_value(); });
        EXPECT_EQ(mismatch->expected_bytes, sent);
        EXPECT_EQ(mismatch->received_bytes, expected);
      }
    }
  }
  EXPECT_EQ(this->a().failure(), nullptr);
  EXPECT_EQ(this->b().failure(), nullptr);
}

TYPED_TEST_P(LinkEndings, AbortNoticesComeInOrderAndPastLongMessages) {
  auto large = stream_bytes(0, 8 << 20), got = this->fresh(large.size());
  this->recv(this->b(), this->tag(1), got.data(), got.size());
  Send& slow = this->send(this->a(), this->tag(1), large.data(), large.size());
  this->run([&] { return this->begun(slow, got); });
  this->a().send_abort(1, "first");
  this->a().send_abort(2, "");
  this->a().send_abort(3, std::string(10'000, 'x'));
  EXPECT_FALSE(this->a().flushed());
  std::vector<AbortNotice> notices;
  this->run([&] {
    while (auto notice = this->b().take_abort()) notices.push_back(*notice);
    return notices.size() == 3;
  });
  EXPECT_LT(slow.moved, large.size());
  EXPECT_EQ(notices[0].communicator, 1u);
  EXPECT_EQ(notices[0].reason, "first");
  EXPECT_EQ(notices[1].communicator, 2u);
  EXPECT_EQ(notices[1].reason, "");
  EXPECT_EQ(notices[2].reason, std::string(4096, 'x'));
  this->run_until_done();
  EXPECT_TRUE(got == large);
}

TYPED_TEST_P(LinkEndings, SaysGoodbye) {
  EXPECT_FALSE(this->b().peer_said_goodbye());
  this->a().send_goodbye();
  EXPECT_FALSE(this->a().flushed());
  this->run([&] { return this->b().peer_said_goodbye(); });
  this->run([&] { return this->a().flushed(); });
  EXPECT_FALSE(this->a().peer_said_goodbye());
  EXPECT_EQ(this->b().failure(), nullptr);
  this->links[0].reset();
  this->run([&] { return this->b().failure() != nullptr; });
  EXPECT_EQ(this->b().failure()->code, ErrorCode::kPeerLost);
  EXPECT_NE(this->b().failure()->message.find("left the group"), std::string::npos);
}

TYPED_TEST_P(LinkEndings, FailsWhenThePeerGoesButDeliversWhatCame) {
  auto data = stream_bytes(0, 500), got = this->fresh(500), never = this->fresh(500);
  this->send(this->a(), this->tag(1), data.data(), 500);
  this->run([&] { return this->a().flushed(); });
  this->links[0].reset();
  this->recv(this->b(), this->tag(1), got.data(), 500);
  this->recv(this->b(), this->tag(2), never.data(), 500);
  this->run([&] { return this->b().failure() != nullptr; });
  EXPECT_EQ(this->b().failure()->code, ErrorCode::kPeerLost);
  EXPECT_EQ(this->pending, 1u);
  EXPECT_TRUE(got == data);
  EXPECT_TRUE(this->b().flushed()) << "nothing will leave any more";
  EXPECT_TRUE(this->b().prepare_sleep()) << "nothing to do";
  this->b().end_sleep();
  this->b().cancel(this->kCommunicator);
  this->send(this->b(), this->tag(3), data.data(), 500);
  this->recv(this->b(), this->tag(4), data.data(), 500);
  EXPECT_FALSE(this->b().progress());
}

TYPED_TEST_P(LinkEndings, RefusesTwoReceivesWithOneTag) {
  std::byte byte{};
  this->recv(this->b(), this->tag(1), &byte, 1);
  EXPECT_THROW(this->recv(this->b(), this->tag(1), &byte, 1), Exception);
}

REGISTER_TYPED_TEST_SUITE_P(LinkEndings, CancelInTheMiddleLeavesTheOtherCommunicatorsAlone,
                            CancelAtEveryMomentOfAnExchange, ReportsADifferentFingerprint,
                            ReportsADifferentSize, AbortNoticesComeInOrderAndPastLongMessages,
                            SaysGoodbye, FailsWhenThePeerGoesButDeliversWhatCame,
                            RefusesTwoReceivesWithOneTag);

}  // namespace hccl_like
