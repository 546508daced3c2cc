#include "tests/fuzz/wires.h"

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "tests/fuzz/bytes_wire.h"
#include "transport/blocks/block_wire.h"
#include "transport/bootstrap/wire_greeting.h"
#include "transport/security/greeting.h"
#include "transport/security/job_key.h"
#include "transport/security/sealed_wire.h"

namespace hccl_like::fuzz {
namespace {

// ------------------------------------------------------------------------------------------ sealed

constexpr uint64_t kFramesAKey = 3;

const Key& session() {
  static const Key kSession(std::string(kKeyBytes, 's'));
  return kSession;
}

// Keeps what is written to it.
class KeepingWire final : public Wire {
 public:
  explicit KeepingWire(Bytes& kept) : Wire("keeping"), kept_(kept) {}
  size_t write(std::span<const ConstRegion> pieces) override {
    size_t bytes = 0;
    for (const ConstRegion& piece : pieces) {
      const auto* const from = reinterpret_cast<const uint8_t*>(piece.data);
      kept_.insert(kept_.end(), from, from + piece.bytes);
      bytes += piece.bytes;
    }
    return bytes;
  }
  std::span<const std::byte> peek(size_t) override { return {}; }
  void release(size_t) override {}
  size_t read(std::span<std::byte>) override { return 0; }
  const Error* failure() const override { return nullptr; }
  bool flush() override { return true; }
  bool prepare_sleep(WakeFor) override { return true; }
  void end_sleep() override {}

 private:
  Bytes& kept_;
};

// Frames of these lengths, and what is in them one after the other.
constexpr std::array<size_t, 5> kLengths{1, 7, 64, 100, 3};

struct Spoken {
  Bytes clear, sealed;
};

const Spoken& spoken() {
  static const Spoken kSpoken = [] {
    Spoken all;
    SealedWire wire(std::make_unique<KeepingWire>(all.sealed), session(), WireSide::kConnector,
                    "nobody", kFramesAKey);
    for (const size_t length : kLengths) {
      Bytes one(length);
      for (size_t i = 0; i < length; ++i) one[i] = static_cast<uint8_t>(all.clear.size() + i);
      const ConstRegion region{reinterpret_cast<const std::byte*>(one.data()), length};
      require(wire.write({&region, 1}) == length, "a frame that is not taken");
      all.clear.insert(all.clear.end(), one.begin(), one.end());
    }
    return all;
  }();
  return kSpoken;
}

// ------------------------------------------------------------------------------------------ blocks

// Brings as blocks what it was given: a byte says how long each is.
class InputPort final : public BlockPort {
 public:
  static constexpr size_t kBlock = 80;
  static constexpr BlockShape kShape{.blocks = 4, .block_bytes = kBlock};
  static constexpr size_t kSlots = 7;

  explicit InputPort(Input input) : input_(input) {
    require(kShape.slots() == kSlots, "another number of slots");
  }
  std::span<std::byte> send_slot(size_t slot) override { return sends_.at(slot); }
  std::span<std::byte> receive_slot(size_t slot) override { return receives_.at(slot); }
  void send(size_t slot, size_t bytes) override {
    require(bytes <= kBlock, "a block that is too long is sent");
    sent_.push_back(slot);
  }
  void receive(size_t slot) override {
    require(posted_.size() < kSlots, "a slot is posted twice");
    posted_.push_back(slot);
  }
  void progress(BlockSink& sink) override {
    for (const size_t slot : std::exchange(sent_, {})) sink.sent(slot);
    while (!posted_.empty() && !input_.empty()) {
      const size_t bytes = std::min<size_t>({input_[0], input_.size() - 1, kBlock});
      const size_t slot = posted_.front();
      posted_.erase(posted_.begin());
      std::memcpy(receives_.at(slot).data(), input_.data() + 1, bytes);
      input_ = input_.subspan(1 + bytes);
      sink.arrived(slot);
    }
    if (input_.empty()) broken_ = "the end";
  }
  const std::string& broken() const override { return broken_; }
  bool prepare_sleep() override { return false; }
  void end_sleep() override {}

 private:
  using Slots = std::array<std::array<std::byte, kBlock>, kSlots>;
  Input input_;
  alignas(64) Slots sends_{}, receives_{};
  std::vector<size_t> sent_, posted_;
  std::string broken_;
};

void append(Bytes& bytes, std::initializer_list<uint32_t> header, size_t payload) {
  bytes.push_back(static_cast<uint8_t>(header.size() * sizeof(uint32_t) + payload));
  for (const uint32_t word : header)
    for (size_t i = 0; i < sizeof word; ++i) bytes.push_back(static_cast<uint8_t>(word >> (8 * i)));
  bytes.insert(bytes.end(), payload, static_cast<uint8_t>(payload));
}

// ---------------------------------------------------------------------------------------- greeting

Identity someone(char letter) {
  return make_identity(JobKey(), std::string(kIdDigits, letter), std::string(kNonceDigits, letter));
}

}  // namespace

void sealed_frames(Input input) {
  const Bytes& clear = spoken().clear;
  SealedWire wire(std::make_unique<BytesWire>(input), session(), WireSide::kAcceptor, "nobody",
                  kFramesAKey);
  size_t opened = 0;
  const auto is_next = [&](std::span<const std::byte> bytes) {
    require(bytes.size() <= clear.size() - opened &&
                std::memcmp(bytes.data(), clear.data() + opened, bytes.size()) == 0,
            "bytes that the peer has not sealed, or not there, are opened");
  };
  std::array<std::byte, 50> memory;
  for (int quiet = 0; quiet < 200 && wire.failure() == nullptr; ++quiet) {
    const auto view = wire.peek(1 + static_cast<size_t>(quiet) % 5);
    is_next(view);
    const size_t got = wire.read(memory);
    is_next(std::span(memory).first(got));
    opened += got;
    if (got > 0) quiet = 0;
  }
}

std::vector<Bytes> sealed_frame_seeds() { return {spoken().sealed}; }

void blocks(Input input) {
  BlockWire wire(std::make_unique<InputPort>(input), InputPort::kShape, "blocks", "nobody");
  std::array<std::byte, 50> memory{};
  size_t read = 0;
  for (size_t turn = 0; turn < 1000 && wire.failure() == nullptr; ++turn) {
    const ConstRegion region{memory.data(), turn % memory.size()};
    wire.write({&region, 1});
    const auto view = wire.peek(1 + turn % 100);
    for (const std::byte one : view) memory[0] ^= one;  // all of it can be read
    wire.release(std::min(view.size(), turn % 7));
    read += std::min(view.size(), turn % 7);
    read += wire.read(std::span(memory).subspan(1));
  }
  // A header may claim what is left of an earlier block, but no more than a block holds.
  require(read <= input.size() * InputPort::kBlock, "more was read than has arrived");
}

std::vector<Bytes> block_seeds() {
  Bytes some, all;
  append(some, {30, 0, 0, 0}, 30);
  append(some, {0, 1, 1, 0}, 0);
  append(some, {64, 2, 0, 1}, 64);
  for (uint32_t i = 0; i < 12; ++i) append(all, {5 * i + 1, i / 2, 0, i}, 5 * i + 1);
  append(all, {0, 0, 2, 0}, 0);
  return {some, all};
}

void wire_greeting(Input input) {
  static const Identity kSelf = someone('a'), kPeer = someone('b');
  const bool calls = !input.empty() && input[0] % 2 == 0;
  WireGreeting greeting(std::make_unique<BytesWire>(input.subspan(input.empty() ? 0 : 1)),
                        calls ? WireSide::kConnector : WireSide::kAcceptor, kSelf, kPeer);
  require(greeting.step() != WireGreeting::State::kDone,
          "a greeting comes to its end without anybody who has the key");
  require(!greeting.cause().empty(), "a greeting that fails without a word");
}

std::vector<Bytes> wire_greeting_seeds() {
  static const Identity kSelf = someone('a'), kPeer = someone('b');
  const std::string hello = greeting::Calling(kPeer, kSelf).hello();
  Bytes called(hello.begin(), hello.end()), answered;
  called.insert(called.begin(), 1);
  const std::string answer(greeting::kAnswerMagic);
  answered.assign(answer.begin(), answer.end());
  answered.insert(answered.begin(), 0);
  answered.resize(1 + greeting::kAnswerBytes + greeting::kWelcomeBytes, 'x');
  return {called, answered};
}

}  // namespace hccl_like::fuzz
