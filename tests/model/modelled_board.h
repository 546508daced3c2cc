#pragma once
// Ranks of one host that share a board, made anew for each execution.
#include <array>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "collectives/board/board.h"
#include "core/base/deadline.h"
#include "tests/model/explorer.h"
#include "tests/model/modelled_host.h"

namespace hccl_like::model {

// The memory that a rank shows to local peers. A test makes it once.
struct Shown {
  std::shared_ptr<Commons> commons = std::make_shared<Commons>();
  uint32_t area = commons->areas().take().value();
  std::span<std::byte> memory = writable(*commons);
};

struct BoardRank {
  Poller& poller;
  const std::vector<Link*>& links;
  std::shared_ptr<Board> board{};
  bool looks_again = true;

  // As an engine waits, its timeout at an end (collectives/engine/engine.cc: drive, sleep).
  template <class Ready>
  void sleep(Ready ready) {
    bool quiet = true;
    size_t prepared = 0;
    for (; quiet && prepared < links.size(); ++prepared)
      if (links[prepared] != nullptr) quiet = links[prepared]->prepare_sleep();
    if (quiet && !(looks_again && ready())) poller.sleep(Deadline::never());
    for (size_t i = 0; i < prepared; ++i)
      if (links[i] != nullptr) links[i]->end_sleep();
  }
  // `place`: in the program, where nothing is known that is not said by it.
  template <class Ready>
  void wait(uint64_t place, Ready ready) {
    while (true) {
      Explorer::active()->landmark(place);
      if (ready()) return;
      sleep(ready);
    }
  }
};

struct BoardRanks {
  BoardRanks(ModelledHost& host, const std::vector<Shown>& shown) {
    for (const Shown& one : shown) begin_life(one.memory);
    host.begin_execution();
    std::vector<std::optional<uint32_t>> areas;
    for (const Shown& one : shown) {
      areas.emplace_back(one.area);
      new (one.commons->areas().data(one.area)) BoardArea;
    }
    for (size_t i = 0; i < shown.size(); ++i) {
      ranks.push_back({.poller = host.poller(i), .links = host.links(i)});
      ranks.back().board =
          Board::make(shown[i].commons, 7, static_cast<int>(i), host.links(i), areas);
    }
    for (BoardRank& rank : ranks)
      check(rank.board->open() == Board::State::kOpen, "there is no board");
  }

  std::vector<BoardRank> ranks;
};

// `scenario(explorer, job)` adds the threads; Job is made of a host and what its ranks show.
template <class Job, class Scenario>
Verdict explore_job(size_t ranks, const Scenario& scenario, Flaw flaw = {}) {
  const std::vector<Shown> shown(ranks);
  std::vector<const Commons*> commons;
  for (const Shown& one : shown) commons.push_back(one.commons.get());
  ModelledHost host(ranks, commons);
  return Explorer::explore(
      [&](Explorer& explorer) { scenario(explorer, std::make_shared<Job>(host, shown)); }, flaw);
}

}  // namespace hccl_like::model
