#pragma once
// Wires whose ends read each other's memory, for tests of what uses that.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "transport/testing/link_pair.h"
#include "transport/testing/sim_wire.h"
#include "transport/wire/remote_memory.h"
#include "transport/wire/wire_wrapper.h"

namespace hccl_like {

// Reads of memory in the same process, which take a few turns, in any order.
class FakeMemory : public RemoteMemory {
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
  bool reaches_devices() const override { return devices; }
  bool prepare(const std::byte*, size_t) override { return devices && !refuses_to_show; }
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

  size_t under_way() const {
    return static_cast<size_t>(std::ranges::count_if(reads_, &Read::used));
  }

  size_t shows = 0, asked = 0, bytes_read = 0;
  size_t fails_from = SIZE_MAX;  // reads of what is shown, by offset
  bool refuses_to_show = false, stuck = false, devices = false;
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

class ReadableWire final : public WireWrapper {
 public:
  ReadableWire(std::unique_ptr<Wire> wire, std::unique_ptr<FakeMemory> memory)
      : WireWrapper(std::move(wire)), memory_(std::move(memory)) {}
  WireExtensions extensions() override { return {.remote_memory = memory_.get()}; }

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
// Two links over such wires.
class ReadableLinks : public LinkPair<Readable> {
 protected:
  void reconnect(bool devices = false) {
    links[0].reset();
    links[1].reset();
    wires = Readable::make();
    LinkOptions options;
    if (devices) options.eager_bytes = 512 << 10;
    for (size_t end : {0u, 1u}) {
      memory[end] = static_cast<FakeMemory*>(wires.ends[end]->extensions().remote_memory);
      memory[end]->devices = devices;
      links[end] = std::make_unique<Link>(std::move(wires.ends[end]), options);
    }
  }

  std::array<FakeMemory*, 2> memory{};
};

}  // namespace hccl_like
