// Long messages between memory that both ends reach: what a user sees, and how ends give up. Over a
// shm wire.
#include "transport/rendezvous/shared_rendezvous.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>

#include "transport/message/frame.h"
#include "transport/message/kept_memory.h"
#include "transport/same_host/commons.h"
#include "transport/testing/shared_links.h"

namespace hccl_like {
namespace {

class SharedRendezvousTest : public SharedLinks {
 protected:
  static constexpr size_t kLong = (5 << 20) + 7;
};

TEST_F(SharedRendezvousTest, CarriesEverySizeWhoeverIsFirst) {
  uint32_t number = 0;
  for (const size_t bytes : {size_t{65535}, size_t{65536}, size_t{65537}, size_t{131'073},
                             size_t{262'145}, size_t{1 << 20}, kLong}) {
    for (const bool early : {false, true}) {
      Shared from(bytes), into(bytes);
      from.fill(++number);
      early ? void(send(0, number, from)) : void(recv(1, number, into));
      for (int i = 0; i < 100; ++i) a().progress(), b().progress();
      early ? void(recv(1, number, into)) : void(send(0, number, from));
      run();
      EXPECT_TRUE(into.holds(number)) << bytes << " bytes, early " << early;
      EXPECT_TRUE(a().flushed());
    }
  }
}

TEST_F(SharedRendezvousTest, EitherEndDoesItAlone) {
  for (const size_t worker : {size_t{0}, size_t{1}}) {
    Shared from(kLong), into(kLong);
    from.fill(worker);
    Recv& received = recv(1, static_cast<uint32_t>(worker), into);
    Send& sent = send(0, static_cast<uint32_t>(worker), from);
    // As far as the announcement and the request go.
    links_[1 - worker]->progress();
    exhaust(*links_[worker]);
    EXPECT_TRUE(into.holds(worker));
    Message& mine = worker == 0 ? static_cast<Message&>(sent) : received;
    Message& other = worker == 0 ? static_cast<Message&>(received) : sent;
    EXPECT_TRUE(mine.done);
    EXPECT_FALSE(other.done) << "inside progress() only";
    EXPECT_FALSE(links_[1 - worker]->prepare_sleep()) << "it can be done at once";
    links_[1 - worker]->end_sleep();
    links_[1 - worker]->progress();
    EXPECT_TRUE(other.done);
  }
}

TEST_F(SharedRendezvousTest, MemoryThatIsNotShownOnBothSidesGoesThroughTheWire) {
  uint32_t number = 0;
  for (const bool shown : {false, true})
    for (const bool early : {false, true}) {
      Shared from(kLong), into(kLong);
      from.fill(++number);
      early ? void(send(0, number, from, shown)) : void(recv(1, number, into, !shown));
      for (int i = 0; i < 100; ++i) a().progress(), b().progress();
      early ? void(recv(1, number, into, !shown)) : void(send(0, number, from, shown));
      run();
      EXPECT_TRUE(into.holds(number));
    }
}

TEST_F(SharedRendezvousTest,
       MemoryThatCannotBeReachedIsReachedFromTheOtherSideOrGoesThroughTheWire) {
  uint32_t number = 0;
  for (const bool from_broken : {false, true})
    for (const bool into_broken : {false, true})
      for (const bool early : {false, true}) {
        Shared from(kLong), into(kLong);
        from.fill(++number);
        // The one is no handle at all, the other says too much.
        if (from_broken) std::memset(&from.range().handle, 0xab, sizeof from.range().handle);
        if (into_broken) into.range().offset += uint64_t{1} << 40;
        early ? void(send(0, number, from)) : void(recv(1, number, into));
        for (int i = 0; i < 100; ++i) a().progress(), b().progress();
        early ? void(recv(1, number, into)) : void(send(0, number, from));
        run();
        ASSERT_TRUE(into.holds(number)) << from_broken << into_broken << early;
      }
}

TEST_F(SharedRendezvousTest, MoreMessagesThanSlotsBothWays) {
  constexpr uint32_t kMessages = 40;
  std::deque<Shared> from, into;
  for (uint32_t i = 0; i < kMessages; ++i) {
    const size_t end = i % 2;
    from.emplace_back(100'000 + i).fill(i);
    into.emplace_back(100'000 + i);
    send(end, i, from.back());
  }
  for (uint32_t i = kMessages; i-- > 0;) recv(1 - i % 2, i, into[i]);
  run();
  for (uint32_t i = 0; i < kMessages; ++i) EXPECT_TRUE(into[i].holds(i)) << i;
}

TEST_F(SharedRendezvousTest, TwoThreadsShareTheWork) {
  for (uint32_t round = 0; round < 8; ++round) {
    Shared out[2]{Shared(kLong), Shared(kLong)}, in[2]{Shared(kLong), Shared(kLong)};
    out[0].fill(round), out[1].fill(round + 100);
    const bool both_ways = round % 2 == 0;
    const auto run_end = [&](size_t end) {
      uint32_t pending = 0;
      Send sending;
      Recv receiving;
      const auto post = [&](auto& message, Pieces& pieces, Shared& memory, size_t from) {
        pieces.add(memory.data(), memory.size());
        message.tag = {
            .communicator = 9, .channel = static_cast<uint32_t>(from), .sequence = round};
        message.bytes = memory.size();
        message.pending = &pending;
        message.place = {
            .range = &memory.range(), .device = &host_device(), .memory = &memory_[end]};
        ++pending;
        links_[end]->post(message);
      };
      if (both_ways || end == 1) post(receiving, receiving.into, in[end], 1 - end);
      if (both_ways || end == 0) post(sending, sending.from, out[end], end);
      while (pending > 0)
        if (!links_[end]->progress()) std::this_thread::yield();
    };
    std::thread other([&] { run_end(1); });
    run_end(0);
    other.join();
    EXPECT_TRUE(in[1].holds(round));
    if (both_ways) {
      EXPECT_TRUE(in[0].holds(round + 100));
    }
  }
}

TEST_F(SharedRendezvousTest, WhatWasGivenUpIsLeftAloneByThePeer) {
  const auto post_both = [&](Shared& from, Shared& into, int steps) {
    steps % 2 == 0 ? void(send(0, 1, from)) : void(recv(1, 1, into));
    steps % 2 == 0 ? void(recv(1, 1, into)) : void(send(0, 1, from));
  };
  give_up_after_every_step(kLong, post_both,
                           [&] { EXPECT_FALSE(sends_.back().done && recvs_.back().done); });
}

// A message of a sender's end, and the other end's view of its slot.
class SharedRendezvousEnds : public testing::Test {
 protected:
  SharedRendezvousEnds() {
    send_.from.add(from_.data(), from_.size());
    send_.bytes = from_.size();
    send_.place = {.range = &from_.range(), .device = &host_device(), .memory = &memory_};
  }
  Claims receiver(uint32_t slot) {
    auto* slots = reinterpret_cast<RendezvousSlot*>(
        wires_.ends[1]->extensions().same_host->workspace().peers.data());
    return {slots[slot], End::kReceiver};
  }

  WirePair wires_ = make_shm_pair(64 << 10);
  SharedRendezvous sender_{*wires_.ends[0]};
  Shared from_{100'000};
  PeerMemory memory_;
  Send send_;
  const uint32_t blocks_ = Blocks(from_.size()).count();
};

TEST_F(SharedRendezvousEnds, OneThatStopsInMidBlockIsWaitedForASecondAtMost) {
  for (const bool lives : {false, true}) {
    Claims receiver = this->receiver(*sender_.offer(send_));
    ASSERT_TRUE(receiver.take(blocks_));
    const auto begin = std::chrono::steady_clock::now();
    sender_.cancel(std::nullopt, lives);
    const auto waited = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(waited >= std::chrono::milliseconds(900), lives);
    EXPECT_FALSE(receiver.take(blocks_));
  }
}

TEST_F(SharedRendezvousEnds, OneThatFinishesItsBlockIsWaitedFor) {
  Claims receiver = this->receiver(*sender_.offer(send_));
  ASSERT_TRUE(receiver.take(blocks_));
  std::atomic<bool> counted{false};
  std::thread canceller([&] {
    sender_.cancel(std::nullopt, true);
    EXPECT_TRUE(counted);
  });
  while (receiver.may_take(blocks_)) std::this_thread::yield();
  counted = true;
  receiver.count();
  canceller.join();
}

// A sender that is stopped while it writes: a second later the receiver goes, and its memory stays
// until the sender has finished.
TEST(RendezvousKept, KeepsTheMemoryThatAStoppedSenderWritesTo) {
  Commons commons;
  WirePair wires = make_shm_pair(64 << 10, &commons);
  auto slots = wires.ends[0]->extensions().same_host->workspace();
  Claims sender(*reinterpret_cast<RendezvousSlot*>(slots.own.data()), End::kSender);
  const auto owner = std::make_shared<Shared>(100'000);
  PeerMemory memory;
  Recv recv;
  recv.into.add(owner->data(), owner->size());
  recv.bytes = owner->size();
  recv.place = {.range = &owner->range(),
                .device = &host_device(),
                .memory = &memory,
                .exports = &commons.exports(),
                .owner = {.object = const_cast<std::shared_ptr<Shared>*>(&owner),
                          .hold = [](void* object) -> std::shared_ptr<void> {
                            return *static_cast<std::shared_ptr<Shared>*>(object);
                          }}};
  auto receiver = std::make_unique<SharedRendezvous>(*wires.ends[1]);
  receiver->begin_receive(recv, 0, owner->range());
  ASSERT_TRUE(sender.take(Blocks(owner->size()).count()));
  const size_t kept = KeptMemory::of_process().size();
  receiver->cancel(std::nullopt, /*peer_lives=*/true);
  EXPECT_EQ(KeptMemory::of_process().size(), kept + 1);
  EXPECT_EQ(owner.use_count(), 2);
  receiver.reset();
  wires.ends[1].reset();  // the group is over
  KeptMemory::of_process().sweep();
  EXPECT_EQ(owner.use_count(), 2) << "the sender has not gone on";
  EXPECT_TRUE(sender.closed());
  sender.put_back();
  KeptMemory::of_process().sweep();
  EXPECT_EQ(KeptMemory::of_process().size(), kept);
  EXPECT_EQ(owner.use_count(), 1);
}

TEST_F(SharedRendezvousEnds, ASlotIsUsedAgainWhenBothHaveLeftIt) {
  SharedRendezvous receiver(*wires_.ends[1]);
  std::vector<uint32_t> slots;
  while (const auto slot = sender_.offer(send_)) slots.push_back(*slot);
  EXPECT_GE(slots.size(), 4u);
  sender_.cancel(std::nullopt, true);
  EXPECT_FALSE(sender_.offer(send_)) << "the receiver may still look at them";
  receiver.decline(slots[2]);
  EXPECT_EQ(sender_.offer(send_), slots[2]);
  EXPECT_FALSE(sender_.offer(send_));
}

TEST_F(SharedRendezvousEnds, ASlotThatDoesNotExistIsNotBegun) {
  EXPECT_TRUE(sender_.may_begin(0));
  EXPECT_FALSE(sender_.may_begin(1000));
  EXPECT_FALSE(sender_.may_begin(uint64_t{1} << 32));
}

// A peer that names one slot twice before either message is asked for: the second receive must not
// take it from the first.
TEST(RendezvousSlots, OneThatIsAnnouncedTwiceEndsTheLink) {
  WirePair wires = make_shm_pair(64 << 10);
  Link link(std::move(wires.ends[1]), {});
  Shared from(100'000), first(from.size()), second(from.size());
  PeerMemory memory;
  std::array<Recv, 2> recvs;
  uint32_t pending = 2;
  for (uint32_t i = 0; i < 2; ++i) {
    const Descriptor descriptor{.slot = 3, .range = from.range()};
    const FrameHeader header{.kind = FrameKind::kAnnounce,
                             .payload = sizeof descriptor,
                             .tag = {.communicator = 7, .sequence = i},
                             .bytes = from.size()};
    const ConstRegion frame[]{{reinterpret_cast<const std::byte*>(&header), sizeof header},
                              {reinterpret_cast<const std::byte*>(&descriptor), sizeof descriptor}};
    ASSERT_EQ(wires.ends[0]->write(frame), sizeof header + sizeof descriptor);
  }
  while (link.progress()) {
  }
  ASSERT_EQ(link.failure(), nullptr);
  for (uint32_t i = 0; i < 2; ++i) {
    Shared& into = i == 0 ? first : second;
    recvs[i].into.add(into.data(), into.size());
    recvs[i].tag = {.communicator = 7, .sequence = i};
    recvs[i].bytes = into.size();
    recvs[i].pending = &pending;
    recvs[i].place = {.range = &into.range(), .device = &host_device(), .memory = &memory};
    link.post(recvs[i]);
  }
  while (link.failure() == nullptr && link.progress()) {
  }
  ASSERT_NE(link.failure(), nullptr);
  EXPECT_NE(link.failure()->message.find("a slot that is in use"), std::string::npos)
      << link.failure()->message;
  EXPECT_FALSE(recvs[1].done);
  link.cancel(7);
}

TEST(RendezvousFork, APeerThatDiesInMidBlockIsAFailureAndNobodyWaitsForIt) {
  constexpr size_t kBytes = 4 << 20;
  auto sockets = make_socket_pair();
  auto turn = make_socket_pair();
  PeerMemory memory;
  uint32_t pending = 1;
  const auto post = [&](Link& link, auto& message, Pieces& pieces, Shared& own) {
    pieces.add(own.data(), own.size());
    message.bytes = own.size();
    message.pending = &pending;
    message.tag = {.communicator = 7, .sequence = 1};
    message.place = {.range = &own.range(), .device = &host_device(), .memory = &memory};
    link.post(message);
  };
  std::byte byte{};
  const pid_t child = ::fork();
  if (child == 0) {
    sockets[0].reset(), turn[0].reset();
    Poller poller;
    auto wire = make_shm_end(std::move(sockets[1]), false, 64 << 10, poller);
    auto* slots =
        reinterpret_cast<RendezvousSlot*>(wire->extensions().same_host->workspace().peers.data());
    Link link(std::move(wire), {});
    Shared into(kBytes);
    Recv message;
    post(link, message, message.into, into);
    link.progress();  // it asks
    while (::read(turn[1].get(), &byte, 1) != 1) std::this_thread::yield();
    Claims(slots[0], End::kReceiver).take(Blocks(kBytes).count());
    ::kill(::getpid(), SIGKILL);
  }
  sockets[1].reset(), turn[1].reset();
  Poller poller;
  auto wire = make_shm_end(std::move(sockets[0]), true, 64 << 10, poller);
  auto* slots =
      reinterpret_cast<RendezvousSlot*>(wire->extensions().same_host->workspace().own.data());
  Link link(std::move(wire), {});
  Shared from(kBytes);
  Send message;
  post(link, message, message.from, from);
  ASSERT_EQ(::write(turn[0].get(), &byte, 1), 1);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (!Claims(slots[0], End::kSender).other_works() && !deadline.expired())
    std::this_thread::yield();
  while (link.failure() == nullptr && !deadline.expired()) {
    poller.poll();
    link.progress();
  }
  ::waitpid(child, nullptr, 0);
  ASSERT_NE(link.failure(), nullptr);
  EXPECT_EQ(link.failure()->code, ErrorCode::kPeerLost);
  EXPECT_EQ(pending, 1u);
  const auto begin = std::chrono::steady_clock::now();
  link.cancel(7);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500));
}

}  // namespace
}  // namespace hccl_like
