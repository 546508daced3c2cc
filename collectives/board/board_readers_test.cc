// Until when a rank's lines, areas and staging buffers stay what they are: until nobody can read
// them any more.
#include <gtest/gtest.h>
#include <linux/futex.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/same_host/same_host_stage.h"
#include "transport/testing/shm_pair.h"

namespace hccl_like {
namespace {

// Two ranks in this thread, and whether the second may still read what the first has shown.
class BoardReaders : public ::testing::Test {
 protected:
  BoardReaders() {
    auto sockets = make_socket_pair();
    std::array<std::optional<uint32_t>, 2> areas;
    for (size_t i = 0; i < 2; ++i) {
      commons_[i] = std::make_shared<Commons>("rank " + std::to_string(i));
      areas[i] = Board::take_area(*commons_[i]);
    }
    ShmHandshake connector(std::move(sockets[0]), ShmHandshake::Side::kConnector, 64 << 10,
                           pollers_[0], commons_[0].get());
    ShmHandshake acceptor(std::move(sockets[1]), ShmHandshake::Side::kAcceptor, 0, pollers_[1],
                          commons_[1].get());
    EXPECT_FALSE(acceptor.step());
    EXPECT_FALSE(connector.step());
    EXPECT_TRUE(acceptor.step()) << acceptor.cause();
    EXPECT_TRUE(connector.step()) << connector.cause();
    links_[0] = std::make_unique<Link>(connector.take(), LinkOptions{});
    links_[1] = std::make_unique<Link>(acceptor.take(), LinkOptions{});
    for (size_t i = 0; i < 2; ++i) {
      std::array<Link*, 2> links{};
      links[1 - i] = links_[i].get();
      boards_[i] = Board::make(commons_[i], 7, static_cast<int>(i), links, areas);
    }
    for (const auto& board : boards_) EXPECT_EQ(board->open(), Board::State::kOpen);
    readers_ = boards_[0]->readers();
    for (const auto& board : boards_) board->show(0, 1, 0);
  }
  bool may_read() const { return !readers_->are_done_with(0); }

  std::array<Poller, 2> pollers_;
  std::array<std::shared_ptr<Commons>, 2> commons_;
  std::array<std::unique_ptr<Link>, 2> links_;
  std::array<std::shared_ptr<Board>, 2> boards_;
  std::shared_ptr<const Readers> readers_;
};

TEST_F(BoardReaders, ReadUntilTheyAreDone) {
  EXPECT_TRUE(may_read());
  boards_[1]->done(0);
  EXPECT_FALSE(may_read());
}

TEST_F(BoardReaders, DoNotReadOnceTheirCallHasFailed) {
  const Call call;
  const Plan plan{.fingerprint = 2};
  const BoardCall on_board{.board = boards_[1].get(),
                           .call = &call,
                           .plan = &plan,
                           .input = &call.input,
                           .output = &call.output};
  SameHostStage stage;
  stage.begin(on_board, CallPath::kBoard, /*shown=*/true, /*begun=*/nullptr);
  stage.advance();
  EXPECT_TRUE(stage.mismatch());
  EXPECT_TRUE(may_read());
  stage.end();
  EXPECT_FALSE(may_read());
}

// The second rank has shown calls 0 and 2 and is done with them, call 1 is in its engine, and a row
// of calls waits for room on the board.
TEST_F(BoardReaders, DoNotWaitForACallThatEndsBeforeItIsShown) {
  constexpr uint32_t kLast = 100;
  boards_[1]->show(2, 1, 0);
  boards_[1]->done(2);
  boards_[1]->done(0);
  std::vector<SameHostStage> stages(kLast + 1);
  std::vector<BoardCall> calls(kLast + 1);
  const Plan plan{.fingerprint = 1};
  const auto begin = [&](uint32_t number) {
    calls[number] = {.board = boards_[1].get(), .plan = &plan, .number = number};
    stages[number].begin(calls[number], CallPath::kMessages, /*shown=*/false, /*begun=*/nullptr);
  };
  for (uint32_t number = kLast; number > 2; --number) {
    begin(number);
    stages[number].advance();
    // In no order: the engine's list has none.
    if (number > 2 + BoardArea::kCallSlots) stages[number].end();
  }
  EXPECT_FALSE(readers_->are_done_with(1));
  begin(1);
  stages[1].end();
  EXPECT_TRUE(readers_->are_done_with(2));
}

TEST_F(BoardReaders, DoNotReadOnceTheirBoardIsGone) {
  boards_[1].reset();
  EXPECT_FALSE(may_read());
  // Nor does the first rank have to wait for it before it shows further calls.
  for (uint32_t call = 0; call < BoardArea::kCallSlots / 2; ++call) {
    boards_[0]->show(call, 1, 0);
    boards_[0]->done(call);
  }
  EXPECT_TRUE(boards_[0]->writable(BoardArea::kCallSlots));
}

TEST_F(BoardReaders, DoNotReadOnceTheirProcessLeaves) {
  commons_[1]->leave();
  EXPECT_FALSE(may_read());
}

TEST_F(BoardReaders, DoNotReadOnceTheirProcessIsDead) {
  // As the kernel does it. Areas come first in what a process shows.
  std::byte* const shown = commons_[1]->areas().data(0);
  auto& word = *reinterpret_cast<LifeWord*>(shown + Commons::kLifeBegin);
  word.futex.fetch_or(FUTEX_OWNER_DIED);
  EXPECT_FALSE(may_read());
}

}  // namespace
}  // namespace hccl_like
