#include "transport/blocks/block_wire.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <vector>

#include "transport/testing/link_contract.h"
#include "transport/testing/link_endings_contract.h"
#include "transport/testing/readable_wire.h"
#include "transport/testing/wire_contract.h"

namespace hccl_like {
namespace {

// State that two ports in one process share: the blocks in flight.
struct Cable {
  std::array<std::deque<std::vector<std::byte>>, 2> to;
  std::array<size_t, 2> most{};  // that were under way to an end at once
};

// A port whose blocks arrive when the other end looks for them.
class CablePort final : public BlockPort {
 public:
  CablePort(std::shared_ptr<Cable> cable, size_t end, BlockShape shape)
      : cable_(std::move(cable)), end_(end), shape_(shape) {
    for (auto* memory : {&sends_, &receives_})
      memory->resize(shape.slots(), std::vector<std::byte>(shape.block_bytes));
  }
  std::span<std::byte> send_slot(size_t slot) override { return sends_[slot]; }
  std::span<std::byte> receive_slot(size_t slot) override { return receives_[slot]; }
  void send(size_t slot, size_t bytes) override {
    auto& queue = cable_->to[1 - end_];
    queue.emplace_back(sends_[slot].begin(), sends_[slot].begin() + static_cast<ptrdiff_t>(bytes));
    cable_->most[1 - end_] = std::max(cable_->most[1 - end_], queue.size());
    sent_.push_back(slot);
  }
  void receive(size_t slot) override { posted_.push_back(slot); }
  void progress(BlockSink& sink) override {
    while (!sent_.empty()) {
      sink.sent(sent_.front());
      sent_.pop_front();
    }
    auto& queue = cable_->to[end_];
    while (!queue.empty()) {
      if (posted_.empty()) {
        broken_ = "a block came that nobody had posted a receive for";
        return;
      }
      std::memcpy(receives_[posted_.front()].data(), queue.front().data(), queue.front().size());
      const size_t slot = posted_.front();
      queue.pop_front();
      posted_.pop_front();
      sink.arrived(slot);
    }
  }
  const std::string& broken() const override { return broken_; }
  bool prepare_sleep() override { return cable_->to[end_].empty(); }
  void end_sleep() override {}
  RemoteMemory* remote_memory() const override { return memory; }

  RemoteMemory* memory = nullptr;

 private:
  const std::shared_ptr<Cable> cable_;
  const size_t end_;
  const BlockShape shape_;
  std::vector<std::vector<std::byte>> sends_, receives_;
  std::deque<size_t> sent_, posted_;
  std::string broken_;
};

struct Pair {
  std::shared_ptr<Cable> cable = std::make_shared<Cable>();
  WirePair wires;
};

Pair make_pair(BlockShape shape) {
  Pair pair;
  for (size_t end = 0; end < 2; ++end)
    pair.wires.ends[end] = std::make_unique<BlockWire>(
        std::make_unique<CablePort>(pair.cable, end, shape), shape, "cable", "the other end");
  return pair;
}

struct CableWires {
  static constexpr bool kThreads = false;
  static WirePair make() { return make_pair({.blocks = 8, .block_bytes = 4096}).wires; }
};
// A block holds a few bytes beside its header, so every boundary is met all the time.
struct TightCableWires {
  static constexpr bool kThreads = false;
  static WirePair make() { return make_pair({.blocks = 700, .block_bytes = 40}).wires; }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Blocks, WireContract, CableWires);
INSTANTIATE_TYPED_TEST_SUITE_P(TightBlocks, WireContract, TightCableWires);
INSTANTIATE_TYPED_TEST_SUITE_P(Blocks, LinkContract, CableWires);
INSTANTIATE_TYPED_TEST_SUITE_P(Blocks, LinkEndings, CableWires);

std::vector<std::byte> header(uint32_t bytes, uint32_t confirmed, uint32_t kind) {
  const std::array<uint32_t, 4> words{bytes, confirmed, kind, 0};
  std::vector<std::byte> block(sizeof words);
  std::memcpy(block.data(), words.data(), sizeof words);
  return block;
}

constexpr BlockShape kSmall{.blocks = 4, .block_bytes = 64};

// A peer waits for it although this rank has what it wants and turns to other things.
TEST(BlockWire, OwesANoteThatHasNotLeftTheProcess) {
  struct Notes final : FakeMemory {
    Notes() : FakeMemory(1) {}
    bool flush() override { return sent; }
    bool sent = false;
  } notes;
  auto port = std::make_unique<CablePort>(std::make_shared<Cable>(), 0, kSmall);
  port->memory = &notes;
  BlockWire wire(std::move(port), kSmall, "cable", "the other end");
  EXPECT_TRUE(wire.owes());
  notes.sent = true;
  EXPECT_FALSE(wire.owes());
}

void write_bytes(Wire& wire, size_t bytes, size_t expected) {
  const std::vector<std::byte> data(bytes);
  const ConstRegion region{data.data(), data.size()};
  ASSERT_EQ(wire.write({&region, 1}), expected);
}

TEST(BlockWire, SendsNoMoreThanTheOtherEndHasRoomFor) {
  Pair pair = make_pair(kSmall);
  write_bytes(*pair.wires.ends[0], 1000, 4 * (64 - 16));
  write_bytes(*pair.wires.ends[0], 1, 0);
  EXPECT_EQ(pair.cable->to[1].size(), 4u);
}

TEST(BlockWire, GetsRoomBackWithoutAWordOfTheOtherEndsUser) {
  Pair pair = make_pair(kSmall);
  write_bytes(*pair.wires.ends[0], 1000, 4 * 48);
  std::array<std::byte, 2 * 48> some;
  EXPECT_EQ(pair.wires.ends[1]->read(some), some.size());
  write_bytes(*pair.wires.ends[0], 1000, 2 * 48);
}

TEST(BlockWire, BothDirectionsAtOnceKeepWithinTheReceivesPosted) {
  Pair pair = make_pair(kSmall);
  std::array<std::byte, 10> some;
  const std::vector<std::byte> data(7);
  const ConstRegion region{data.data(), data.size()};
  size_t written = 0, read = 0;
  for (int i = 0; i < 10'000; ++i) {
    for (auto& end : pair.wires.ends) written += end->write({&region, 1});
    if (i % 3 == 0)
      for (auto& end : pair.wires.ends) read += end->read(some);
  }
  EXPECT_GT(read, 10'000u);
  EXPECT_LE(pair.cable->most[0], kSmall.slots());
  EXPECT_LE(pair.cable->most[1], kSmall.slots());
  for (auto& end : pair.wires.ends) EXPECT_EQ(end->failure(), nullptr);
}

struct Nonsense {
  const char* name;
  std::vector<std::byte> block;
};
class BlockWireAgainst : public testing::TestWithParam<Nonsense> {};

TEST_P(BlockWireAgainst, APeerThatTalksNonsenseIsLost) {
  Pair pair = make_pair(kSmall);
  pair.cable->to[1].push_back(GetParam().block);
  Wire& wire = *pair.wires.ends[1];
  EXPECT_EQ(wire.peek().size(), 0u);
  ASSERT_NE(wire.failure(), nullptr);
  EXPECT_EQ(*wire.failure(), (Error{ErrorCode::kPeerLost,
                                    "the cable connection to the other end is gone: it sent what "
                                    "cannot be understood"}));
}

INSTANTIATE_TEST_SUITE_P(Words, BlockWireAgainst,
                         testing::Values(Nonsense{"MoreBytesThanABlockHas", header(49, 0, 0)},
                                         Nonsense{"MoreBytesThanANumberHas", header(~0u, 0, 0)},
                                         Nonsense{"ABlockConfirmedThatWasNotSent", header(1, 1, 0)},
                                         Nonsense{"ManyBlocksConfirmed", header(0, ~0u >> 1, 1)},
                                         Nonsense{"AnUnknownKind", header(0, 0, 9)}),
                         [](const auto& test) { return test.param.name; });

TEST(BlockWire, SaysGoodbyeAlsoWhenTheOtherEndReadsNothing) {
  Pair pair = make_pair(kSmall);
  write_bytes(*pair.wires.ends[0], 1000, 4 * 48);
  pair.wires.ends[0].reset();
  std::array<std::byte, 4 * 48> all;
  EXPECT_EQ(pair.wires.ends[1]->read(all), all.size());
  EXPECT_EQ(pair.wires.ends[1]->peek().size(), 0u);
  ASSERT_NE(pair.wires.ends[1]->failure(), nullptr);
}

}  // namespace
}  // namespace hccl_like
