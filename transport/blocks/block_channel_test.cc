// Channels over simulated cards that lose blocks, with and without an error, and work again.
#include "transport/blocks/block_channel.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/number_setting.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;

CardTimes::Time card_clock{};

CardTimes card_times() {
  CardTimes times;
  times.now = [] { return card_clock; };
  times.turns = 1;
  return times;
}

// One direction of one card: what has left the sender's slots.
struct CardLane {
  std::deque<std::vector<std::byte>> under_way;
  bool silent = false;  // nothing arrives
  bool stuck = false;   // nothing leaves the slots either
};

struct SimulatedCard {
  std::array<CardLane, 2> to;
  std::array<std::string, 2> error;  // of the next progress() of an end
};

class SimulatedPort final : public BlockPort {
 public:
  SimulatedPort(std::shared_ptr<SimulatedCard> card, size_t end, BlockShape shape)
      : card_(std::move(card)), end_(end) {
    for (auto* memory : {&sends_, &receives_})
      memory->resize(shape.slots(), std::vector<std::byte>(shape.block_bytes));
  }
  std::span<std::byte> send_slot(size_t slot) override { return sends_[slot]; }
  std::span<std::byte> receive_slot(size_t slot) override { return receives_[slot]; }
  void send(size_t slot, size_t bytes) override { to_send_.push_back({slot, bytes}); }
  void receive(size_t slot) override { posted_.push_back(slot); }
  void progress(BlockSink& sink) override {
    if (!card_->error[end_].empty()) broken_ = std::exchange(card_->error[end_], "");
    CardLane& out = card_->to[1 - end_];
    CardLane& in = card_->to[end_];
    for (; !to_send_.empty() && !out.stuck; to_send_.pop_front()) {
      const auto [slot, bytes] = to_send_.front();
      const auto* const from = sends_[slot].data();
      if (broken_.empty()) out.under_way.emplace_back(from, from + bytes);
      sink.sent(slot);
    }
    while (!in.silent && !in.under_way.empty() && !posted_.empty()) {
      const size_t slot = posted_.front();
      std::memcpy(receives_[slot].data(), in.under_way.front().data(), in.under_way.front().size());
      posted_.pop_front();
      in.under_way.pop_front();
      sink.arrived(slot);
    }
  }
  const std::string& broken() const override { return broken_; }
  bool mend() override {
    if (mends) broken_.clear();
    return mends;
  }
  bool prepare_sleep() override { return true; }
  void end_sleep() override {}

  bool mends = true;

 private:
  const std::shared_ptr<SimulatedCard> card_;
  const size_t end_;
  std::vector<std::vector<std::byte>> sends_, receives_;
  struct ToSend {
    size_t slot, bytes;
  };
  std::deque<ToSend> to_send_;
  std::deque<size_t> posted_;
  std::string broken_;
};

constexpr BlockShape kShape{.blocks = 4, .block_bytes = 64};

// Two ends send numbers to each other, and check the order of arrival.
struct Conversation {
  explicit Conversation(size_t cards, const CardTimes& times = card_times()) {
    for (size_t i = 0; i < cards; ++i) net.push_back(std::make_shared<SimulatedCard>());
    for (size_t end : {0u, 1u}) {
      std::vector<std::unique_ptr<BlockPort>> ports;
      for (const auto& card : net) {
        auto port = std::make_unique<SimulatedPort>(card, end, kShape);
        this->ports[end].push_back(port.get());
        ports.push_back(std::move(port));
      }
      ends[end] =
          std::make_unique<BlockChannel>(std::move(ports), kShape, "connection to a peer", times);
      ends[end]->rails_changed() = [this, end](uint32_t cards, uint32_t broken) {
        replaced[end] += cards, down[end] = broken;
      };
    }
  }
  bool send(size_t end, size_t numbers = 1) {
    const auto room = ends[end]->room();
    if (room.empty()) return false;
    for (size_t i = 0; i < numbers; ++i)
      std::memcpy(room.data() + i * sizeof(uint64_t), &sent[end], sizeof(uint64_t)), ++sent[end];
    ends[end]->send(numbers * sizeof(uint64_t));
    return true;
  }
  bool receive(size_t end) {
    auto& arrivals = ends[end]->arrivals();
    if (arrivals.empty()) return false;
    const auto block = ends[end]->unread(arrivals.front());
    for (size_t i = 0; i < block.size(); i += sizeof(uint64_t)) {
      uint64_t number = 0;
      std::memcpy(&number, block.data() + i, sizeof number);
      if (number != received[end]++) ++wrong;
    }
    ends[end]->pop_arrival();
    return true;
  }
  void turn(milliseconds time = milliseconds(1)) {
    card_clock += time;
    for (auto& end : ends) end->progress();
  }
  // Whether both ends receive all within `time` of the simulated clock.
  bool settles(milliseconds time) {
    for (milliseconds passed{0}; passed < time; passed += milliseconds(1)) {
      turn();
      for (size_t end : {0u, 1u})
        while (receive(end)) {
        }
      if (received[0] == sent[1] && received[1] == sent[0]) return true;
    }
    return false;
  }
  void heal() {
    for (auto& card : net)
      for (CardLane& lane : card->to) lane.silent = lane.stuck = false;
  }

  std::vector<std::shared_ptr<SimulatedCard>> net;
  std::array<std::vector<SimulatedPort*>, 2> ports;
  std::array<std::unique_ptr<BlockChannel>, 2> ends;
  std::array<uint64_t, 2> sent{}, received{};
  std::array<uint32_t, 2> replaced{}, down{};  // as rails_changed() tells
  size_t wrong = 0;
};

TEST(BlockChannel, GoesOnOverAnotherCardWhenBlocksFail) {
  Conversation both(2);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(both.send(0));
  both.net[0]->error[0] = "the cable is out";
  EXPECT_TRUE(both.settles(milliseconds(2)));
  EXPECT_FALSE(both.ends[0]->works(0));
  EXPECT_EQ(both.replaced, (std::array{1u, 0u}));
  EXPECT_EQ(both.down, (std::array{1u, 0u}));
  ASSERT_TRUE(both.send(1));
  EXPECT_TRUE(both.settles(milliseconds(2)));
  EXPECT_EQ(both.wrong, 0u);
}

TEST(BlockChannel, FindsASilentCardByPingsAndGoesOnOverAnotherOne) {
  for (const bool stuck : {false, true}) {
    Conversation both(2);
    for (CardLane& lane : both.net[0]->to) lane.silent = true;
    both.net[0]->to[1].stuck = stuck;
    ASSERT_TRUE(both.send(0));
    EXPECT_FALSE(both.settles(milliseconds(790)));
    EXPECT_TRUE(both.settles(milliseconds(30)));
    EXPECT_FALSE(both.ends[0]->works(0));
    // The old block comes after all.
    ASSERT_TRUE(both.send(0));
    both.heal();
    EXPECT_TRUE(both.settles(milliseconds(5)));
    EXPECT_EQ(both.wrong, 0u);
  }
}

TEST(BlockChannel, ABusyPeerIsNotTakenForASilentCard) {
  Conversation both(2);
  ASSERT_TRUE(both.send(0));
  for (int i = 0; i < 20'000; ++i) {
    card_clock += milliseconds(1);
    both.ends[0]->progress();
  }
  EXPECT_TRUE(both.ends[0]->works(0));
  EXPECT_TRUE(both.ends[0]->works(1));
  EXPECT_TRUE(both.settles(milliseconds(2)));
}

TEST(BlockChannel, APeerThatReadsNothingIsNotTakenForASilentCard) {
  Conversation both(2);
  while (both.send(0)) {
  }
  for (int i = 0; i < 20'000; ++i) both.turn();
  EXPECT_TRUE(both.ends[0]->works(0));
  EXPECT_TRUE(both.ends[0]->works(1));
}

TEST(BlockChannel, TakesACardBackThatWorksAgain) {
  Conversation both(2);
  for (CardLane& lane : both.net[0]->to) lane.silent = true;
  ASSERT_TRUE(both.send(0));
  EXPECT_TRUE(both.settles(milliseconds(900)));
  for (int i = 0; i < 6000; ++i) both.turn();
  EXPECT_FALSE(both.ends[0]->works(0));
  both.heal();
  EXPECT_EQ(both.down[0], 1u);
  for (int i = 0; i < 11'000; ++i) both.turn();
  EXPECT_TRUE(both.ends[0]->works(0));
  EXPECT_EQ(both.down, (std::array{0u, 0u}));
  // The other card is not needed any more.
  for (CardLane& lane : both.net[1]->to) lane.silent = true;
  ASSERT_TRUE(both.send(0));
  ASSERT_TRUE(both.send(1));
  EXPECT_TRUE(both.settles(milliseconds(5)));
}

TEST(BlockChannel, ItsOnlyCardIsTriedAgainWhenItFails) {
  Conversation both(1);
  ASSERT_TRUE(both.send(0));
  ASSERT_TRUE(both.send(1));
  ASSERT_TRUE(both.settles(milliseconds(5)));
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(both.send(0));
    both.net[0]->error[0] = "reset by somebody";
    ASSERT_TRUE(both.settles(milliseconds(150))) << i;
  }
  EXPECT_EQ(both.replaced, (std::array{20u, 0u}));
  EXPECT_EQ(both.down, (std::array{0u, 0u}));
  EXPECT_EQ(both.wrong, 0u);
}

TEST(BlockChannel, SendsAgainWhatItsOnlyCardHasLostWithoutAnError) {
  Conversation both(1);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(both.send(0));
  both.ends[0]->progress();
  both.net[0]->to[1].under_way.pop_front();
  EXPECT_TRUE(both.settles(milliseconds(520)));
  EXPECT_EQ(both.wrong, 0u);
}

TEST(BlockChannel, EndsWhenNoCardWorksForLong) {
  Conversation both(2);
  ASSERT_TRUE(both.send(1));
  ASSERT_TRUE(both.settles(milliseconds(5)));
  for (auto& card : both.net) card->to[0].silent = true;
  int passed = 0;
  for (; passed < 10'000 && both.ends[0]->ended().empty(); ++passed) {
    for (auto& card : both.net) card->error[0] = "no route";
    both.turn();
  }
  EXPECT_EQ(both.ends[0]->ended(), "no route");
  EXPECT_NEAR(passed, 5'500, 120);
}

TEST(BlockChannel, EndsAtOnceWhereNothingCanBeTriedAgain) {
  Conversation both(1);
  ASSERT_TRUE(both.send(1));
  ASSERT_TRUE(both.settles(milliseconds(5)));
  both.ports[0][0]->mends = false;
  both.net[0]->error[0] = "no route";
  both.turn();
  EXPECT_EQ(both.ends[0]->ended(), "no route");
}

TEST(BlockChannel, APeerThatHasNeverAnsweredIsNotTriedAgain) {
  Conversation both(1);
  both.net[0]->error[0] = "no route";
  both.turn();
  EXPECT_EQ(both.ends[0]->ended(), "no route");
}

// Faults at random, but one card is never silent for good.
void converse(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](size_t most) { return static_cast<size_t>(random() % most); };
  const size_t cards = 1 + below(3);
  CardTimes times = card_times();
  times.outage = std::chrono::hours(1);  // the peer is busy for long
  Conversation both(cards, times);
  ASSERT_TRUE(both.send(0));
  ASSERT_TRUE(both.send(1));
  ASSERT_TRUE(both.settles(milliseconds(5)));
  for (int step = 0; step < 400; ++step) {
    const size_t end = below(2);
    SimulatedCard& card = *both.net[below(cards)];
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
        both.send(end, 1 + below(6));
        break;
      case 3:
      case 4:
        both.receive(end);
        break;
      case 5:
        if (&card != both.net.back().get()) card.to[end].silent = true;
        break;
      case 6:
        if (&card != both.net.back().get()) card.to[end].silent = card.to[end].stuck = true;
        break;
      case 7:
        card.to[end].silent = card.to[end].stuck = false;
        break;
      case 8: {  // some blocks under way are lost; neither end is told, or one, or both
        auto& lost = card.to[end].under_way;
        for (size_t i = below(lost.size() + 1); i > 0; --i)
          lost.erase(lost.begin() + static_cast<ptrdiff_t>(below(lost.size())));
        if (below(2) == 0) card.error[1 - end] = "reset";
        if (below(2) == 0) card.error[end] = "reset";
        break;
      }
      case 9:
        card_clock += milliseconds(below(1500));
        break;
      default:
        card_clock += milliseconds(below(20));
        both.ends[end]->progress();
    }
  }
  both.heal();
  const bool settled = both.settles(milliseconds(20'000));
  for (size_t end : {0u, 1u}) ASSERT_EQ(both.ends[end]->ended(), "") << seed;
  ASSERT_TRUE(settled) << seed << ": " << both.received[1] << " of " << both.sent[0] << ", "
                       << both.received[0] << " of " << both.sent[1];
  ASSERT_EQ(both.wrong, 0u) << seed;
}

TEST(BlockChannel, DeliversEachBlockOnceWhateverFails) {
  const uint64_t first = number_setting("HCCL_LIKE_CARD_FAULT_FIRST", 1);
  const uint64_t seeds = number_setting("HCCL_LIKE_CARD_FAULT_SEEDS", 2000);
  for (uint64_t seed = first; seed < first + seeds && !testing::Test::HasFatalFailure(); ++seed)
    converse(seed);
}

}  // namespace
}  // namespace hccl_like
