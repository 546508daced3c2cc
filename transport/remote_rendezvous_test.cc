// Long messages that the receiver reads: all that a link must do, over wires whose ends read each other's memory.
#include "transport/remote_rendezvous.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "transport/link_contract.h"
#include "transport/passing_wire.h"
#include "transport/sim/sim_wire.h"

namespace hccl_like {
namespace {

// Reads of memory in the same process, which take a few turns, in any order.
class FakeMemory final : public RemoteMemory {
 public:
  explicit FakeMemory(uint64_t seed) : random_(seed) {}
  ~FakeMemory() override {
    if (peer_ != nullptr) peer_->peer_ = nullptr;
  }
  static void connect(FakeMemory& a, FakeMemory& b) {
    a.peer_ = &b;
    b.peer_ = &a;
  }

  std::optional<RemotePlace> show(size_t slot, const std::byte* data, size_t bytes) override {
    if (refuses_to_show) return std::nullopt;
    EXPECT_EQ(shown_[slot].data, nullptr);
    shown_[slot] = {data, bytes};
    ++shows;
    RemotePlace place;
    place.words[0] = slot;
    return place;
  }
  void hide(size_t slot) override { shown_[slot] = {}; }

  std::optional<uint32_t> read(const RemotePlace& place, size_t offset,
                               std::span<std::byte> into) override {
    for (uint32_t i = 0; i < kReads; ++i) {
      if (reads_[i].used) continue;
      ++asked;
      reads_[i] = {.used = true,
                   .turns = static_cast<int>(random_() % 5),
                   .slot = place.words[0],
                   .offset = offset,
                   .into = into};
      return i;
    }
    return std::nullopt;
  }
  State state(uint32_t read) const override { return reads_[read].state; }
  void release(uint32_t read) override {
    EXPECT_NE(reads_[read].state, State::kUnderWay);
    reads_[read] = {};
  }
  void tell(Note note) override {
    if (peer_ != nullptr) peer_->heard_.push_back(note);
  }
  std::optional<Note> hear() override {
    if (heard_.empty()) return std::nullopt;
    const Note note = heard_.front();
    heard_.pop_front();
    return note;
  }
  bool has_notes() override { return !heard_.empty(); }
  void progress() override {
    for (Read& read : reads_)
      if (read.used && read.state == State::kUnderWay && !stuck && read.turns-- <= 0) finish(read);
  }
  void abandon(const char* why) override {
    abandoned = why;
    for (Read& read : reads_)
      if (read.state == State::kUnderWay) read.state = State::kFailed;
  }

  size_t shows = 0, asked = 0, bytes_read = 0;
  size_t fails_from = SIZE_MAX;  // reads of what is shown, by offset
  bool refuses_to_show = false, stuck = false;
  std::string abandoned;

 private:
  struct Read {
    bool used = false;
    State state = State::kUnderWay;
    int turns = 0;
    size_t slot = 0, offset = 0;
    std::span<std::byte> into;
  };
  void finish(Read& read) {
    const ConstRegion from = peer_ == nullptr ? ConstRegion{} : peer_->shown_[read.slot];
    if (from.data == nullptr || read.offset + read.into.size() > from.bytes ||
        read.offset >= fails_from) {
      read.state = State::kFailed;
      return;
    }
    std::memcpy(read.into.data(), from.data + read.offset, read.into.size());
    bytes_read += read.into.size();
    read.state = State::kDone;
  }

  std::mt19937_64 random_;
  FakeMemory* peer_ = nullptr;
  std::array<ConstRegion, kSlots> shown_{};
  std::array<Read, kReads> reads_{};
  std::deque<Note> heard_;
};

class ReadableWire final : public PassingWire {
 public:
  ReadableWire(std::unique_ptr<Wire> wire, std::unique_ptr<FakeMemory> memory)
      : PassingWire(std::move(wire)), memory_(std::move(memory)) {}
  RemoteMemory* remote_memory() const override { return memory_.get(); }

 private:
  const std::unique_ptr<FakeMemory> memory_;
};

struct Readable {
  static constexpr bool kThreads = false;
  static WirePair make() {
    SimPair sim = make_sim_pair({.capacity = 64 << 10, .seed = 5, .chunk = 4001, .delay = 3});
    auto a = std::make_unique<FakeMemory>(1), b = std::make_unique<FakeMemory>(2);
    FakeMemory::connect(*a, *b);
    WirePair pair;
    pair.ends = {std::make_unique<ReadableWire>(std::move(sim.a), std::move(a)),
                 std::make_unique<ReadableWire>(std::move(sim.b), std::move(b))};
    return pair;
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Readable, LinkContract, Readable);

// One link, whose peer is this test.
class RemoteRendezvousTest : public LinkPair<Readable> {
 protected:
  void SetUp() override { reconnect(); }
  void reconnect() {
    links[0].reset();
    links[1].reset();
    wires = Readable::make();
    for (size_t end : {0u, 1u}) {
      memory[end] = static_cast<FakeMemory*>(wires.ends[end]->remote_memory());
      links[end] = std::make_unique<Link>(std::move(wires.ends[end]), LinkOptions{});
    }
  }
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

  std::array<FakeMemory*, 2> memory{};
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

// What was added already would be added again.
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
