// Tests a link's reaction to bytes that no link would send, and its messages whose memory the wire
// keeps. link_contract.h has the other tests.
#include "transport/link/link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "transport/message/frame.h"
#include "transport/testing/sim_wire.h"
#include "transport/testing/wire_contract.h"
#include "transport/wire/wire_wrapper.h"

namespace hccl_like {
namespace {

class Stranger : public testing::Test {
 protected:
  Stranger() : pair_(make_sim_pair({.capacity = 1 << 20})), link_(std::move(pair_.b), {}) {}

  void send(const FrameHeader& header, size_t payload) {
    std::vector<std::byte> bytes(sizeof header + payload);
    std::memcpy(bytes.data(), &header, sizeof header);
    const ConstRegion region{bytes.data(), bytes.size()};
    ASSERT_EQ(pair_.a->write({&region, 1}), bytes.size());
    for (int i = 0; i < 10; ++i) link_.progress();
  }
  void expect_refused() {
    ASSERT_NE(link_.failure(), nullptr);
    EXPECT_EQ(link_.failure()->code, ErrorCode::kPeerLost);
    EXPECT_NE(link_.failure()->message.find("not our protocol"), std::string::npos);
  }
  void post_recv(size_t bytes, size_t element_bytes = 1) {
    buffer_.resize(bytes);
    recv_.tag = kTag;
    recv_.bytes = bytes;
    recv_.pending = &pending_;
    recv_.into.add(buffer_.data(), bytes);
    recv_.element_bytes = element_bytes;
    link_.post(recv_);
  }

  static constexpr Tag kTag{.communicator = 5, .sequence = 3};
  SimPair pair_;
  Link link_;
  std::vector<std::byte> buffer_;
  Recv recv_;
  uint32_t pending_ = 1;
};

TEST_F(Stranger, RandomBytesAreRefused) {
  const std::vector<std::byte> data = stream_bytes(0, 48);
  FrameHeader header;
  std::memcpy(&header, data.data(), sizeof header);
  send(header, 0);
  expect_refused();
}

TEST_F(Stranger, AnotherVersionIsRefused) {
  send({.version = FrameHeader::kVersion + 1, .kind = FrameKind::kGoodbye}, 0);
  expect_refused();
}

TEST_F(Stranger, AnUnknownKindIsRefused) {
  send({.kind = static_cast<FrameKind>(77)}, 0);
  expect_refused();
}

TEST_F(Stranger, AnEndlessEagerMessageIsRefused) {
  send({.kind = FrameKind::kEager, .payload = 1u << 31, .tag = kTag, .bytes = 1u << 31}, 0);
  expect_refused();
}

TEST_F(Stranger, LengthsThatContradictEachOtherAreRefused) {
  send({.kind = FrameKind::kEager, .payload = 4, .tag = kTag, .bytes = 5}, 4);
  expect_refused();
}

TEST_F(Stranger, ADescriptorOfAnotherSizeIsRefused) {
  send({.kind = FrameKind::kReady, .payload = 4, .tag = kTag, .bytes = 100'000}, 4);
  expect_refused();
}

TEST_F(Stranger, ASlotThatIsNotThereIsRefused) {
  FrameHeader header{
      .kind = FrameKind::kAnnounce, .payload = sizeof(Descriptor), .tag = kTag, .bytes = 100'000};
  send(header, sizeof(Descriptor));
  expect_refused();
}

TEST_F(Stranger, DataThatNobodyAskedForIsRefused) {
  send({.kind = FrameKind::kData, .payload = 4, .tag = kTag, .bytes = 100'000}, 4);
  expect_refused();
}

TEST_F(Stranger, DataPastTheEndIsRefused) {
  post_recv(100'000);
  send({.kind = FrameKind::kData,
        .payload = 4,
        .tag = kTag,
        .fingerprint = 99'999,
        .bytes = 100'000},
       4);
  expect_refused();
  EXPECT_TRUE(buffer_ == std::vector<std::byte>(100'000));
}

TEST_F(Stranger, AnOffsetThatWrapsRoundIsRefused) {
  post_recv(100'000);
  send({.kind = FrameKind::kData,
        .payload = 4,
        .tag = kTag,
        .fingerprint = ~uint64_t{0} - 1,
        .bytes = 100'000},
       4);
  expect_refused();
}

TEST_F(Stranger, DataOutOfOrderIsRefused) {
  post_recv(100'000);
  send({.kind = FrameKind::kData, .payload = 4, .tag = kTag, .fingerprint = 8, .bytes = 100'000},
       4);
  expect_refused();
}

TEST_F(Stranger, DataThatTearsAnElementIsRefused) {
  post_recv(100'000, 4);
  send({.kind = FrameKind::kData, .payload = 6, .tag = kTag, .bytes = 100'000}, 6);
  expect_refused();
}

TEST_F(Stranger, DataForASmallMessageThatWasNotAskedForIsRefused) {
  post_recv(100);
  send({.kind = FrameKind::kData, .payload = 100, .tag = kTag, .bytes = 100}, 100);
  expect_refused();
}

TEST_F(Stranger, TwoEarlyMessagesWithOneTagAreRefused) {
  const FrameHeader header{.kind = FrameKind::kEager, .payload = 4, .tag = kTag, .bytes = 4};
  send(header, 4);
  EXPECT_EQ(link_.failure(), nullptr);
  send(header, 4);
  expect_refused();
}

TEST_F(Stranger, NoFrameWithAFlippedBitDoesHarm) {
  const FrameHeader good{.kind = FrameKind::kEager, .payload = 4, .tag = kTag, .bytes = 4};
  for (size_t bit = 0; bit < 8 * sizeof good; ++bit) {
    SimPair pair = make_sim_pair();
    Link link(std::move(pair.b), {});
    std::array<std::byte, sizeof good + 4> bytes{};
    std::memcpy(bytes.data(), &good, sizeof good);
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    const ConstRegion region{bytes.data(), bytes.size()};
    ASSERT_EQ(pair.a->write({&region, 1}), bytes.size());
    Recv recv;
    uint32_t pending = 1;
    std::array<std::byte, 4> into{};
    recv.tag = kTag;
    recv.bytes = 4;
    recv.pending = &pending;
    recv.into.add(into.data(), 4);
    link.post(recv);
    for (int i = 0; i < 10; ++i) link.progress();
    EXPECT_EQ(pending, 1u) << "bit " << bit << " was not noticed";
    link.cancel(kTag.communicator);
  }
}

TEST(Link, LongPayloadsBeginWhereTheWireLikesIt) {
  constexpr size_t kLine = 64;
  SimPair pair = make_sim_pair({.capacity = 1 << 20, .alignment = kLine});
  Link link(std::move(pair.b), {.eager_bytes = 1 << 20});
  std::vector<std::byte> data = stream_bytes(0, 3000);
  const std::array<size_t, 5> sizes{100, 1024, 3000, 7, 2048};
  std::array<Send, sizes.size()> sends;
  uint32_t pending = sizes.size();
  for (size_t i = 0; i < sizes.size(); ++i) {
    sends[i].tag = {.sequence = static_cast<uint32_t>(i)};
    sends[i].bytes = sizes[i];
    sends[i].pending = &pending;
    sends[i].from.add(data.data(), sizes[i]);
    link.post(sends[i]);
  }
  while (pending > 0) ASSERT_TRUE(link.progress());

  const std::span<const std::byte> sent = pair.a->peek();
  size_t at = 0;
  for (const size_t size : sizes) {
    FrameHeader header;
    std::memcpy(&header, sent.data() + at, sizeof header);
    EXPECT_EQ(header.payload, size);
    at += sizeof header;
    for (; size >= 1024 && at % kLine != 0; ++at) {
      EXPECT_EQ(sent[at], std::byte{0});
    }
    EXPECT_TRUE(std::ranges::equal(sent.subspan(at, size), std::span(data).first(size))) << size;
    at += size;
  }
  EXPECT_EQ(at, sent.size());
}

// A wire that needs the memory of accepted bytes until the test confirms them.
class KeepingWire : public WireWrapper {
 public:
  KeepingWire(std::unique_ptr<Wire> wire, uint64_t& confirmed, uint64_t& copied)
      : WireWrapper(std::move(wire)), confirmed_(confirmed), copied_(copied) {}
  bool let_go(uint64_t accepted, bool copy) override {
    if (copy && accepted > confirmed_) copied_ = accepted;
    return accepted <= std::max(confirmed_, copied_);
  }

 private:
  uint64_t& confirmed_;
  uint64_t& copied_;
};

class KeptMessages : public testing::Test {
 protected:
  static constexpr size_t kBytes = 1 << 20;

  KeptMessages()
      : pair_(make_sim_pair({.capacity = 4 << 20})),
        data_(stream_bytes(0, kBytes)),
        got_(kBytes),
        a_(std::make_unique<KeepingWire>(std::move(pair_.a), confirmed_, copied_),
           {.eager_bytes = 1024}),
        b_(std::move(pair_.b), {.eager_bytes = 1024}) {
    send_.from.add(data_.data(), kBytes);
    recv_.into.add(got_.data(), kBytes);
    send_.tag = recv_.tag = {.communicator = 5};
    send_.bytes = recv_.bytes = kBytes;
    send_.pending = recv_.pending = &pending_;
    a_.post(send_);
    b_.post(recv_);
  }
  // Until the receiver has everything.
  void exchange() {
    while (!recv_.done) {
      a_.progress();
      b_.progress();
    }
  }

  SimPair pair_;
  std::vector<std::byte> data_, got_;
  uint64_t confirmed_ = 0, copied_ = 0;
  uint32_t pending_ = 2;
  Send send_;
  Recv recv_;
  Link a_, b_;
};

TEST_F(KeptMessages, CompleteOnceTheirBytesAreConfirmed) {
  confirmed_ = UINT64_MAX;
  exchange();
  EXPECT_TRUE(send_.done);
  EXPECT_EQ(copied_, 0u);
  EXPECT_TRUE(got_ == data_);
}

TEST_F(KeptMessages, AreCopiedWhenTheyAreNotConfirmedInTime) {
  exchange();
  EXPECT_FALSE(a_.flushed());
  while (!send_.done) a_.progress();
  EXPECT_GE(copied_, kBytes);
  EXPECT_LT(copied_, UINT64_MAX) << "later messages wait on";
}

TEST_F(KeptMessages, AreCopiedBeforeTheSleep) {
  exchange();
  const bool done = send_.done;  // only if the exchange took longer than the longest wait
  EXPECT_EQ(a_.prepare_sleep(), done) << "a message that completes ends the sleep";
  a_.end_sleep();
  EXPECT_TRUE(send_.done);
  EXPECT_GE(copied_, kBytes);
  EXPECT_TRUE(a_.prepare_sleep());
  a_.end_sleep();
}

TEST_F(KeptMessages, CompleteWhenTheLinkFails) {
  exchange();
  a_.fail(Error{ErrorCode::kPeerLost, "a test"});
  EXPECT_TRUE(send_.done);
}

TEST(Link, ALinkThatSawGarbageIgnoresTheRest) {
  std::mt19937_64 random(99);
  for (int round = 0; round < 2000; ++round) {
    SimPair pair = make_sim_pair({.capacity = 1 << 20, .seed = random(), .chunk = 100});
    Link link(std::move(pair.b), {});
    for (int frame = 0; frame < 20; ++frame) {
      // Mostly plausible, so that the dice reach every branch.
      const auto payload = static_cast<uint32_t>(random() % 50);
      const FrameHeader header{.kind = static_cast<FrameKind>(1 + random() % 7),
                               .payload = random() % 2 == 0 ? payload : 0,
                               .tag = {.sequence = static_cast<uint32_t>(random() % 3)},
                               .fingerprint = random() % 2,
                               .bytes = random() % 2 == 0 ? payload : 50};
      std::vector<std::byte> bytes(sizeof header + header.payload);
      std::memcpy(bytes.data(), &header, sizeof header);
      for (size_t done = 0; done < bytes.size();) {
        const ConstRegion region{bytes.data() + done, bytes.size() - done};
        done += pair.a->write({&region, 1});
      }
      link.progress();
    }
    for (int i = 0; i < 200; ++i) link.progress();
    while (link.take_abort()) {
    }
  }
}

}  // namespace
}  // namespace hccl_like
