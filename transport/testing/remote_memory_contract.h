#pragma once
// Conformance tests for the RemoteMemory of a wire; skipped for wires without it. The type is as in
// wire_contract.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "transport/testing/wire_pair.h"
#include "transport/wire/remote_memory.h"

namespace hccl_like {

template <class Wires>
class RemoteMemoryContract : public WireTest<Wires> {
 protected:
  using Bytes = std::vector<std::byte>;

  void SetUp() override {
    for (size_t i : {0u, 1u}) memory[i] = this->pair.ends[i]->extensions().remote_memory;
    ASSERT_EQ(memory[0] == nullptr, memory[1] == nullptr);
    if (memory[0] == nullptr) GTEST_SKIP() << "this transport does not read the peer's memory";
  }
  void TearDown() override {
    for (RemoteMemory* one : memory)
      if (one != nullptr && this->HasFailure()) one->abandon("the test has failed");
  }
  RemoteMemory& a() { return *memory[0]; }
  RemoteMemory& b() { return *memory[1]; }
  template <class Done>
  void progress_until(Done done) {
    this->patiently([&] {
      for (size_t i : {0u, 1u}) {
        memory[i]->progress();
        this->pair.ends[i]->flush();
      }
      return done();
    });
  }
  // b() reads.
  RemoteMemory::State read(const RemotePlace& place, size_t offset, std::span<std::byte> into) {
    std::optional<uint32_t> number;
    progress_until([&] { return (number = b().read(place, offset, into)).has_value(); });
    if (!number) return RemoteMemory::State::kFailed;
    progress_until([&] { return b().state(*number) != RemoteMemory::State::kUnderWay; });
    const auto state = b().state(*number);
    b().release(*number);
    return state;
  }
  static RemoteMemory::Note note(uint32_t number) { return {RemoteMemory::Told::kDropped, number}; }

  std::array<RemoteMemory*, 2> memory{};
};
TYPED_TEST_SUITE_P(RemoteMemoryContract);

TYPED_TEST_P(RemoteMemoryContract, ReadsPartsOfWhatThePeerShows) {
  constexpr size_t kPart = 100'001;
  const auto data = stream_bytes(7, 4 * kPart);
  const auto place = this->a().show(3, data.data(), data.size());
  ASSERT_TRUE(place);
  std::vector<std::byte> got(data.size());
  std::vector<uint32_t> reads;
  for (size_t i : {2u, 0u, 3u, 1u}) {
    std::optional<uint32_t> number;
    const auto into = std::span(got).subspan(i * kPart, kPart);
    this->progress_until(
        [&] { return (number = this->b().read(*place, i * kPart, into)).has_value(); });
    ASSERT_TRUE(number);
    EXPECT_EQ(std::ranges::count(reads, *number), 0) << "it is in use";
    reads.push_back(*number);
  }
  for (const uint32_t number : reads) {
    this->progress_until([&] { return this->b().state(number) != RemoteMemory::State::kUnderWay; });
    EXPECT_EQ(this->b().state(number), RemoteMemory::State::kDone);
    this->b().release(number);
  }
  EXPECT_TRUE(got == data);
  this->a().hide(3);
}

TYPED_TEST_P(RemoteMemoryContract, SlotsAreApartAndAreUsedAgain) {
  for (size_t turn = 0; turn < 3; ++turn) {
    std::vector<std::vector<std::byte>> shown;
    std::vector<RemotePlace> places;
    for (size_t slot = 0; slot < RemoteMemory::kSlots; ++slot) {
      shown.push_back(stream_bytes(1000 * turn + slot, 40'000 + slot));
      const auto place = this->a().show(slot, shown.back().data(), shown.back().size());
      ASSERT_TRUE(place);
      places.push_back(*place);
    }
    for (size_t slot = RemoteMemory::kSlots; slot-- > 0;) {
      std::vector<std::byte> got(shown[slot].size());
      ASSERT_EQ(this->read(places[slot], 0, got), RemoteMemory::State::kDone);
      EXPECT_TRUE(got == shown[slot]) << slot;
      this->a().hide(slot);
    }
  }
}

TYPED_TEST_P(RemoteMemoryContract, NotesArriveInOrderWhileTheStreamIsFull) {
  this->fill_a();
  for (uint32_t turn = 0; turn < 5; ++turn) {
    constexpr uint32_t kNotes = 4 * RemoteMemory::kSlots;
    for (uint32_t i = 0; i < kNotes; ++i) this->a().tell(this->note(turn * kNotes + i));
    for (uint32_t i = 0; i < kNotes; ++i) {
      std::optional<RemoteMemory::Note> heard;
      this->progress_until([&] { return (heard = this->b().hear()).has_value(); });
      ASSERT_TRUE(heard);
      EXPECT_EQ(heard->message, turn * kNotes + i);
      EXPECT_EQ(heard->told, RemoteMemory::Told::kDropped);
    }
    EXPECT_FALSE(this->b().has_notes());
    EXPECT_FALSE(this->a().has_notes());
  }
}

TYPED_TEST_P(RemoteMemoryContract, ANoteIsHeardBeforeAReadThatBeganAfterIt) {
  const auto data = stream_bytes(1, 5000);
  for (uint32_t turn = 0; turn < 20; ++turn) {
    const auto place = this->a().show(0, data.data(), data.size());
    ASSERT_TRUE(place);
    this->a().tell(this->note(turn));
    std::vector<std::byte> got(data.size());
    ASSERT_EQ(this->read(*place, 0, got), RemoteMemory::State::kDone);
    const auto heard = this->b().hear();
    ASSERT_TRUE(heard);
    EXPECT_EQ(heard->message, turn);
    this->a().hide(0);
  }
}

TYPED_TEST_P(RemoteMemoryContract, ANoteWakesASleeper) {
  Wire& sleeper = *this->pair.ends[1];
  Poller& poller = *this->pair.pollers[1];
  ASSERT_TRUE(sleeper.prepare_sleep({}));
  this->a().tell(this->note(1));
  this->patiently([&] {
    this->pair.ends[0]->flush();
    return poller.nappers() > 0 || poller.poll();
  });
  sleeper.end_sleep();
  this->progress_until([&] { return this->b().hear().has_value(); });
}

REGISTER_TYPED_TEST_SUITE_P(RemoteMemoryContract, ReadsPartsOfWhatThePeerShows,
                            SlotsAreApartAndAreUsedAgain, NotesArriveInOrderWhileTheStreamIsFull,
                            ANoteIsHeardBeforeAReadThatBeganAfterIt, ANoteWakesASleeper);

}  // namespace hccl_like
