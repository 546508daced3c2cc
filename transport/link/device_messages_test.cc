// Messages that lie in memory of devices, which nothing on the host may touch: by reading, or not
// at all.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "transport/rendezvous/remote_rendezvous.h"
#include "transport/testing/readable_wire.h"

namespace hccl_like {
namespace {

class DeviceMessages : public ReadableLinks {
 protected:
  static constexpr size_t kBytes = 100'000;

  void SetUp() override { reconnect(/*devices=*/true); }
  void send_from_device(uint32_t number, Bytes& data) {
    Send& message = sends.emplace_back();
    message.device = true;
    message.from.add(data.data(), data.size());
    post(a(), message, tag(number), data.size());
  }
  Recv& recv_into_device(uint32_t number, Bytes& into) {
    Recv& message = recvs.emplace_back();
    message.device = true;
    message.into.add(into.data(), into.size());
    post(b(), message, tag(number), into.size());
    return message;
  }
  // More messages than slots, the last of which is asked for first: what nobody has asked for keeps
  // no slot.
  template <class SendOne>
  void arrive_in_any_order(SendOne send_one) {
    constexpr uint32_t kMany = 3 * RemoteMemory::kSlots;
    std::vector<Bytes> data, got;
    for (uint32_t i = 0; i < kMany; ++i) {
      data.push_back(stream_bytes(100 * i, kBytes + i));
      got.push_back(fresh(data[i].size()));
    }
    for (uint32_t i = 0; i < kMany; ++i) send_one(i, data[i]);
    settle();
    recv_into_device(kMany - 1, got[kMany - 1]);
    run([&] { return recvs.back().done; });
    for (uint32_t i = kMany - 1; i-- > 0;) recv_into_device(i, got[i]);
    run_until_done();
    EXPECT_TRUE(got == data);
    EXPECT_TRUE(a().flushed());
  }
  // The ends that learned that the message cannot go on.
  std::array<bool, 2> unreachable() {
    std::array<bool, 2> told{};
    for (size_t end : {0u, 1u})
      if (const auto mismatch = links[end]->take_mismatch()) told[end] = mismatch->unreachable;
    return told;
  }
};

TEST_F(DeviceMessages, AreReadWhoeverComesFirst) {
  EXPECT_TRUE(a().reaches_devices());
  EXPECT_EQ(a().eager_bytes(), (32u << 10) - 1);
  size_t sum = 0;
  for (const bool receiver_first : {false, true}) {
    for (const size_t bytes : {size_t{32} << 10, kBytes, size_t{5} << 20}) {
      auto data = stream_bytes(1, bytes), got = fresh(bytes);
      const uint32_t number = static_cast<uint32_t>(recvs.size());
      if (receiver_first) recv_into_device(number, got);
      if (receiver_first) settle();
      send_from_device(number, data);
      settle();
      if (!receiver_first) recv_into_device(number, got);
      run_until_done();
      EXPECT_TRUE(got == data);
      sum += bytes;
    }
  }
  EXPECT_EQ(memory[1]->bytes_read, sum);
}

TEST_F(DeviceMessages, MoreThanSlotsArriveInAnyOrder) {
  arrive_in_any_order([&](uint32_t i, Bytes& data) { send_from_device(i, data); });
}

TEST_F(DeviceMessages, MoreThanSlotsFromTheHostArriveInAnyOrder) {
  arrive_in_any_order(
      [&](uint32_t i, Bytes& data) { send(a(), tag(i), data.data(), data.size()); });
}

TEST_F(DeviceMessages, MeetMessagesInMemoryOfTheHost) {
  for (uint32_t number = 0; number < 6; ++number) {
    auto data = stream_bytes(number, kBytes), got = fresh(kBytes);
    if (number % 2 == 0) {
      send_from_device(number, data);
      recv(b(), tag(number), got.data(), got.size());
    } else {
      send(a(), tag(number), data.data(), data.size());
      recv_into_device(number, got);
    }
    run_until_done();
    EXPECT_TRUE(got == data);
  }
  EXPECT_EQ(memory[1]->bytes_read, 6 * kBytes);
}

TEST_F(DeviceMessages, ThatCannotBeShownAreTold) {
  memory[0]->refuses_to_show = true;
  auto data = stream_bytes(1, kBytes), got = fresh(kBytes);
  send_from_device(1, data);
  Recv& message = recv_into_device(1, got);
  settle();
  EXPECT_EQ(unreachable(), (std::array{true, false}));
  EXPECT_FALSE(message.done);
  EXPECT_EQ(got, fresh(kBytes));
}

TEST_F(DeviceMessages, ThatCannotBeReadAreToldAndTheLinkReachesNoneFromThenOn) {
  memory[1]->fails_from = 0;
  auto data = stream_bytes(1, kBytes), got = fresh(kBytes);
  send_from_device(1, data);
  recv_into_device(1, got);
  settle();
  EXPECT_EQ(unreachable(), (std::array{true, false}));
  EXPECT_EQ(got, fresh(kBytes));
  EXPECT_FALSE(b().reaches_devices());
  EXPECT_FALSE(b().prepare(got.data(), got.size()));
}

TEST_F(DeviceMessages, OfTheReceiverThatComeThroughTheWireAreTold) {
  memory[0]->refuses_to_show = true;  // the sender's is the host's memory, which has that way
  auto data = stream_bytes(1, kBytes), got = fresh(kBytes);
  send(a(), tag(1), data.data(), data.size());
  recv_into_device(1, got);
  settle();
  EXPECT_EQ(unreachable(), (std::array{false, true}));
  EXPECT_EQ(got, fresh(kBytes));
}

TEST_F(DeviceMessages, ThatAreGivenUpWhileTheyWaitForASlotAreForgotten) {
  constexpr uint32_t kMany = 3 * RemoteMemory::kSlots;
  memory[1]->stuck = true;
  std::vector<Bytes> data(kMany, stream_bytes(1, kBytes)), got(kMany, fresh(kBytes));
  for (uint32_t i = 0; i < kMany; ++i) recv_into_device(i, got[i]);
  for (uint32_t i = 0; i < kMany; ++i) send_from_device(i, data[i]);
  settle();
  memory[1]->stuck = false;
  b().cancel(kCommunicator);
  a().cancel(kCommunicator);
  settle();
  EXPECT_TRUE(a().flushed());
  EXPECT_EQ(unreachable(), (std::array{false, false}));
  pending = 0;
  auto other = stream_bytes(7, kBytes), into = fresh(kBytes);
  send(a(), tag(1, 2), other.data(), other.size());
  recv(b(), tag(1, 2), into.data(), into.size());
  run_until_done();
  EXPECT_TRUE(into == other);
}

}  // namespace
}  // namespace hccl_like
