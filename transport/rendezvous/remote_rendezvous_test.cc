// Long messages that the receiver reads: all that a link must do, over wires whose ends read each
// other's memory.
#include "transport/rendezvous/remote_rendezvous.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "transport/message/frame.h"
#include "transport/testing/link_contract.h"
#include "transport/testing/readable_wire.h"

namespace hccl_like {
namespace {

INSTANTIATE_TYPED_TEST_SUITE_P(Readable, LinkContract, Readable);

// One link, whose peer is this test.
class RemoteRendezvousTest : public ReadableLinks {
 protected:
  void SetUp() override { reconnect(); }
  // Of what is sent from a to b; `combine` sums it.
  void check_exchange(size_t bytes, bool combine, uint32_t number) {
    auto data = stream_bytes(number, bytes), operand = stream_bytes(99, bytes), got = fresh(bytes);
    std::vector<std::byte> expected = data;
    Recv& message = recvs.emplace_back();
    message.into.add(got.data(), bytes);
    if (combine) {
      message.operand.add(operand.data(), bytes);
      message.combine = combine_int32;
      message.element_bytes = 4;
      combine_int32(expected.data(), operand.data(), data.data(), bytes / 4);
    }
    post(b(), message, tag(number), bytes);
    send(a(), tag(number), data.data(), bytes);
    run_until_done();
    EXPECT_TRUE(got == expected) << bytes << " bytes, combine " << combine;
  }
};

TEST_F(RemoteRendezvousTest, EveryByteOfALongMessageIsReadOnce) {
  size_t sum = 0;
  uint32_t number = 0;
  for (const size_t bytes : {size_t{32} << 10, size_t{256} << 10, (size_t{256} << 10) + 4,
                             size_t{5} << 20, (size_t{5} << 20) + 12}) {
    for (const bool combine : {false, true}) {
      check_exchange(bytes, combine, ++number);
      sum += bytes;
    }
  }
  EXPECT_EQ(memory[1]->bytes_read, sum);
  EXPECT_EQ(memory[0]->shows, number);
}

TEST_F(RemoteRendezvousTest, AShortMessageGoesThroughTheWire) {
  check_exchange((32 << 10) - 4, false, 1);
  EXPECT_EQ(memory[0]->shows, 0u);
}

TEST_F(RemoteRendezvousTest, MemoryThatCannotBeShownGoesThroughTheWire) {
  memory[0]->refuses_to_show = true;
  for (uint32_t number = 1; number < 20; ++number) check_exchange(1 << 20, number % 2 == 0, number);
  EXPECT_EQ(memory[1]->bytes_read, 0u);
}

TEST_F(RemoteRendezvousTest, WhatCannotBeReadGoesThroughTheWireFromThenOn) {
  memory[1]->fails_from = 0;
  for (uint32_t number = 1; number < 20; ++number) check_exchange(1 << 20, number % 2 == 0, number);
  EXPECT_EQ(memory[1]->bytes_read, 0u);
  EXPECT_LE(memory[1]->asked, 4u) << "of the first message";
}

TEST_F(RemoteRendezvousTest, AMessageOfWhichAPartCannotBeReadIsSentFromItsBeginning) {
  memory[1]->fails_from = 3 << 20;
  check_exchange(5 << 20, false, 1);
  EXPECT_EQ(memory[1]->abandoned, "");
}

// A second transfer would add the blocks that are added already a second time.
TEST_F(RemoteRendezvousTest, ASumOfWhichAPartCannotBeReadEndsTheWire) {
  memory[1]->fails_from = 3 << 20;
  auto data = stream_bytes(1, 5 << 20), operand = data;
  Recv& message = recvs.emplace_back();
  message.into.add(operand.data(), operand.size());
  message.operand.add(operand.data(), operand.size());
  message.combine = combine_int32;
  message.element_bytes = 4;
  post(b(), message, tag(1), data.size());
  send(a(), tag(1), data.data(), data.size());
  run([&] { return !memory[1]->abandoned.empty(); });
  EXPECT_EQ(memory[1]->abandoned, "a part of a message could not be read");
}

TEST_F(RemoteRendezvousTest, MoreMessagesThanSlotsAllArrive) {
  constexpr uint32_t kMany = 3 * RemoteMemory::kSlots;
  std::vector<Bytes> data, got;
  for (uint32_t i = 0; i < kMany; ++i) {
    data.push_back(stream_bytes(100 * i, 100'000 + i));
    got.push_back(fresh(data[i].size()));
  }
  for (uint32_t i = 0; i < kMany; ++i) send(a(), tag(i), data[i].data(), data[i].size());
  settle();
  for (uint32_t i = kMany; i-- > 0;) recv(b(), tag(i), got[i].data(), got[i].size());
  run_until_done();
  EXPECT_TRUE(got == data);
}

// The receiver hears of it before it finds that its reads are done.
TEST_F(RemoteRendezvousTest, AMessageWhoseMemoryWasLetGoIsNeverDone) {
  auto data = stream_bytes(0, 1 << 20), got = fresh(data.size());
  Recv& message = recv(b(), tag(1), got.data(), got.size());
  send(a(), tag(1), data.data(), data.size());
  while (memory[1]->bytes_read == 0) step();
  a().cancel(kCommunicator);
  data.assign(data.size(), std::byte{0xdd});
  settle();
  EXPECT_FALSE(message.done);
  EXPECT_EQ(b().failure(), nullptr);
  b().cancel(kCommunicator);
  pending = 0;
  auto other = stream_bytes(7, 1 << 20);
  send(a(), tag(1, 2), other.data(), other.size());
  recv(b(), tag(1, 2), got.data(), got.size());
  run_until_done();
  EXPECT_TRUE(got == other);
}

// The note comes before the announcement has been looked at: nothing of it may be read afterwards.
TEST_F(RemoteRendezvousTest, AMessageThatWasGivenUpBeforeItWasAskedForIsNeverRead) {
  auto data = stream_bytes(0, 1 << 20), got = fresh(data.size());
  send(a(), tag(1), data.data(), data.size());
  settle();
  a().cancel(kCommunicator);
  settle();
  Recv& message = recv(b(), tag(1), got.data(), got.size());
  settle();
  EXPECT_EQ(memory[1]->bytes_read, 0u);
  EXPECT_FALSE(message.done);
  b().cancel(kCommunicator);
  pending = 0;
  // And its slot serves again.
  for (uint32_t i = 0; i < 2 * RemoteMemory::kSlots; ++i) {
    send(a(), tag(i, 2), data.data(), data.size());
    recv(b(), tag(i, 2), got.data(), got.size());
    run_until_done();
  }
  EXPECT_EQ(memory[0]->shows, 1 + 2 * RemoteMemory::kSlots);
}

TEST_F(RemoteRendezvousTest, AReceiverThatGivesUpWaitsForItsReads) {
  auto data = stream_bytes(0, 4 << 20), got = fresh(data.size());
  recv(b(), tag(1), got.data(), got.size());
  send(a(), tag(1), data.data(), data.size());
  while (memory[1]->bytes_read == 0) step();
  b().cancel(kCommunicator);
  got.assign(got.size(), std::byte{0xdd});
  settle();
  EXPECT_TRUE(std::ranges::all_of(got, [](std::byte byte) { return byte == std::byte{0xdd}; }));
  EXPECT_EQ(memory[1]->abandoned, "");
}

// A peer that names one slot twice before either message is asked for: the reads of the first stay
// with its receive.
TEST_F(RemoteRendezvousTest, ASlotThatIsAnnouncedTwiceEndsTheLinkAndLeavesNoReads) {
  wires = Readable::make();
  memory[1] = static_cast<FakeMemory*>(wires.ends[1]->extensions().remote_memory);
  links[1] = std::make_unique<Link>(std::move(wires.ends[1]), LinkOptions{});
  auto data = stream_bytes(0, 1 << 20), first = fresh(data.size()), second = fresh(data.size());
  const auto place = wires.ends[0]->extensions().remote_memory->show(0, data.data(), data.size());
  const auto announce = [&](uint32_t number, uint64_t message) {
    Descriptor descriptor{.slot = message};
    std::memcpy(descriptor.range.handle.bytes, &*place, sizeof *place);
    const FrameHeader header{.kind = FrameKind::kAnnounce,
                             .payload = sizeof descriptor,
                             .tag = tag(number),
                             .fingerprint = 1,
                             .bytes = data.size()};
    const ConstRegion frame[]{{reinterpret_cast<const std::byte*>(&header), sizeof header},
                              {reinterpret_cast<const std::byte*>(&descriptor), sizeof descriptor}};
    ASSERT_EQ(wires.ends[0]->write(frame), sizeof header + sizeof descriptor);
  };
  announce(1, RemoteMemory::kSlots);
  announce(2, 2 * RemoteMemory::kSlots);
  for (int i = 0; i < 100; ++i) b().progress(), wires.ends[0]->flush();
  recv(b(), tag(1), first.data(), first.size());
  b().progress();
  ASSERT_GT(memory[1]->asked, 0u);
  Recv& other = recv(b(), tag(2), second.data(), second.size());
  for (int i = 0; i < 100 && b().failure() == nullptr; ++i) b().progress();
  ASSERT_NE(b().failure(), nullptr);
  EXPECT_NE(b().failure()->message.find("a slot that is in use"), std::string::npos)
      << b().failure()->message;
  EXPECT_FALSE(other.done);
  b().cancel(kCommunicator);
  EXPECT_EQ(memory[1]->under_way(), 0u);
}

TEST_F(RemoteRendezvousTest, ReadsThatNeverEndAreAbandoned) {
  auto data = stream_bytes(0, 4 << 20), got = fresh(data.size());
  recv(b(), tag(1), got.data(), got.size());
  send(a(), tag(1), data.data(), data.size());
  memory[1]->stuck = true;
  settle();
  b().cancel(kCommunicator);
  EXPECT_EQ(memory[1]->abandoned, "reads that were given up have not ended");
}

}  // namespace
}  // namespace hccl_like
