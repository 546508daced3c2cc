// How the members of a part find each other's areas (collectives/board/board.cc), in every
// execution, while one member ends the part and its parent and uses the area of the parent for
// another board, which has parts, too.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <new>
#include <vector>

#include "tests/model/modelled_board.h"
#include "tests/model/verdict.h"

namespace hccl_like::model {
namespace {

constexpr uint32_t kParent = 0, kPart = 1, kOther = 2;  // areas of each rank

struct Parts : BoardRanks {
  Parts(ModelledHost& host, const std::vector<Shown>& shown) : BoardRanks(host, shown) {
    for (size_t i = 0; i < shown.size(); ++i) {
      commons.push_back(shown[i].commons);
      new (commons[i]->areas().data(kPart)) BoardArea;
      commons[i]->areas().give_back(kPart);
      parts.push_back(Board::split(ranks[i].board, /*communicator=*/9, std::array{0, 1},
                                   /*number=*/0));
    }
  }
  // Rank 0 ends the part and its parent, and tells the area of another board's part where it told
  // that of the first one.
  void use_area_again(std::memory_order told) {
    parts[0].reset();
    ranks[0].board.reset();
    const uint32_t lease = Board::take_area(*commons[0]).value();
    check(LeasedArea::area(lease) == kParent, "not the area of the parent");
    // As Board::make() and Board::split() do.
    auto& area = *reinterpret_cast<BoardArea*>(commons[0]->areas().data(kParent));
    area.done.store(uint64_t{1} << 63 | UINT32_MAX, std::memory_order_release);
    area.children[0].store(LeasedArea::name(kOther, 0), told);
  }
  // Whether rank 1 has found what rank 0 shows in its area of the part.
  bool found_the_part() const {
    const auto* const area =
        reinterpret_cast<const BoardArea*>(ranks[1].links[0]->commons()->area(kPart));
    return parts[1]->payload(0, /*call=*/0, 1) == area->lines[0].payload.data();
  }

  std::vector<std::shared_ptr<Commons>> commons;
  std::vector<std::shared_ptr<Board>> parts;
};

struct Seen {
  bool opening = false, open = false, closed = false;
};

Verdict explore(Seen& seen, std::memory_order told = std::memory_order_release, Flaw flaw = {}) {
  const auto scenario = [&](Explorer& explorer, const std::shared_ptr<Parts>& job) {
    explorer.thread("rank 0", [=] { job->use_area_again(told); });
    explorer.thread("rank 1", [=, &seen] {
      for (int look = 0; look < 2; ++look) {
        const Board::State state = job->parts[1]->open();
        check(state != Board::State::kOpen || job->found_the_part(), "the area of another board");
        seen.open |= state == Board::State::kOpen;
        seen.closed |= state == Board::State::kClosed;
        seen.opening |= state == Board::State::kOpening;
      }
    });
  };
  return explore_job<Parts>(2, scenario, flaw);
}

TEST(AreasModel, AMemberNeverTakesTheAreaOfAnotherBoardForItsPart) {
  Seen seen;
  EXPECT_TRUE(holds(explore(seen), 40));
  EXPECT_TRUE(seen.opening && seen.open && seen.closed) << "all happen";
}

TEST(AreasModel, WhatIsToldOfPartsMustBeReleasedAndAcquired) {
  Seen seen;
  EXPECT_TRUE(fails_with(explore(seen, std::memory_order_relaxed), "the area of another board"));
  EXPECT_TRUE(
      fails_with(explore(seen, std::memory_order_release, {.relaxed_inside = "Board::find"}),
                 "the area of another board"));
}

}  // namespace
}  // namespace hccl_like::model
