// Schedules of all algorithms with one mistake each, as many as HCCL_LIKE_MUTANTS says, drawn from
// HCCL_LIKE_MUTANTS_FIRST on.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "collectives/verify/check.h"
#include "collectives/verify/prove.h"
#include "tests/number_setting.h"
#include "tests/proof/any_order.h"
#include "tests/proof/prove_large.h"

namespace hccl_like {
namespace {

constexpr uint64_t kMutants = 20'000;

// A schedule that can be changed anywhere.
struct Draft {
  struct Line {
    Step step;
    std::vector<Slot> sources;
  };
  uint32_t chunks;
  std::vector<Slot> scratch;
  std::vector<std::vector<Line>> rounds;

  explicit Draft(const Schedule& schedule)
      : chunks(schedule.chunks()),
        scratch(schedule.scratch_like().begin(), schedule.scratch_like().end()) {
    for (size_t round = 0; round < schedule.rounds(); ++round) {
      rounds.emplace_back();
      for (const Step& step : schedule.steps(round)) {
        const auto sources = schedule.sources(step);
        rounds.back().push_back({step, {sources.begin(), sources.end()}});
      }
    }
  }

  Schedule schedule() const {
    Schedule result(chunks);
    for (const Slot& like : scratch) result.add_scratch(like);
    for (const auto& round : rounds) {
      result.begin_round();
      for (const Line& line : round) {
        if (line.step.kind == Step::Kind::kReduce && !line.sources.empty())
          result.add_reduce(line.step.dst, line.sources);
        else if (line.step.kind != Step::Kind::kReduce)
          result.add(line.step);
      }
    }
    return result;
  }
};

constexpr const char* kKinds[] = {
    "a step is left out",
    "a step is made twice",
    "another peer",
    "another place is read",
    "another place is written",
    "another buffer",
    "another number of chunks",
    "a sum is forgotten or added",
    "a schedule for another root",
    "a step in another round",
    "two steps in another order",
    "two rounds in another order",
    "a source of a sum",
    "two rounds at once",
    "a round in between",
    "a scratch slot of another size",
    "a schedule of another rank",
    "a send for a receive",
};
constexpr size_t kKindsOfMistakes = std::size(kKinds);

class Mutant {
 public:
  explicit Mutant(uint64_t seed) : draw_(seed) {
    static const auto all = [] {
      std::vector<const Algorithm*> found;
      for (int i = 0; i < kCollectives; ++i)
        if (const auto collective = static_cast<Collective>(i); !is_point_to_point(collective))
          for (const Algorithm& algorithm : algorithms(collective)) found.push_back(&algorithm);
      return found;
    }();
    algorithm_ = all[below(all.size())];
    const Hosts hosts = layout();
    const int root = static_cast<int>(below(static_cast<size_t>(hosts.size())));
    right_ = job_ = make_job(*algorithm_, hosts, root);
    rank_ = below(job_.ranks.size());
    kind_ = below(kKindsOfMistakes);
    Draft draft(job_.ranks[rank_]);
    change(draft, hosts);
    if (kind_ != kOtherRoot && kind_ != kOtherRank) job_.ranks[rank_] = draft.schedule();
  }

  const Job& job() const { return job_; }
  bool differs() const { return !(job_.ranks[rank_] == right_.ranks[rank_]); }
  size_t kind() const { return kind_; }
  std::string describe() const {
    return std::string(name(job_.collective)) + ':' + std::string(algorithm_->name) + " of " +
           std::to_string(job_.size()) + " ranks, root " + std::to_string(job_.root) + ", " +
           kKinds[kind_] + ", rank " + std::to_string(rank_) + ":\n" +
           right_.ranks[rank_].to_string() + "became\n" + job_.ranks[rank_].to_string();
  }

 private:
  static constexpr size_t kOtherRoot = 8, kOtherRank = 16;

  size_t below(size_t limit) { return limit == 0 ? 0 : draw_() % limit; }

  Hosts layout() {
    const int size = 2 + static_cast<int>(below(11));
    if (algorithm_->fits(4)) return algorithm_->fits(size) ? size : 8;
    std::vector<int> hosts;
    for (int rank = 0; rank < size + 2; ++rank) hosts.push_back(static_cast<int>(below(4)));
    const Hosts any = Hosts::of(hosts);
    return algorithm_->fits(any) ? any : Hosts::even(3, 2);
  }

  // Somewhere near, and sometimes far away.
  uint32_t other(uint32_t index, size_t count) {
    if (below(2) == 0) return static_cast<uint32_t>(below(count));
    return index + (below(2) == 0 ? 1u : ~0u);
  }

  Draft::Line* line(Draft& draft) {
    std::vector<Draft::Line*> lines;
    for (auto& round : draft.rounds)
      for (Draft::Line& one : round) lines.push_back(&one);
    return lines.empty() ? nullptr : lines[below(lines.size())];
  }

  Slot& slot_of(Draft::Line& line, bool read) {
    if (read && !line.sources.empty()) return line.sources[below(line.sources.size())];
    return read ? line.step.a : line.step.dst;
  }

  size_t slots(const Draft& draft, Slot slot) const {
    return slot.buffer == Buffer::kScratch ? draft.scratch.size() : draft.chunks;
  }

  void change(Draft& draft, const Hosts& hosts) {
    const size_t ranks = job_.ranks.size();
    auto& rounds = draft.rounds;
    const size_t round = below(rounds.size());
    Draft::Line* one = line(draft);
    if (one == nullptr) return;
    switch (kind_) {
      case 0:
      case 1:
        for (auto& lines : rounds)
          for (size_t i = 0; i < lines.size(); ++i)
            if (&lines[i] == one) {
              if (kind_ == 0)
                lines.erase(lines.begin() + static_cast<ptrdiff_t>(i));
              else
                lines.push_back(Draft::Line(lines[i]));
              return;
            }
        return;
      case 2:
        if (one->step.peer >= 0) one->step.peer = static_cast<int32_t>(below(ranks));
        return;
      case 3:
      case 4: {
        Slot& slot = slot_of(*one, kind_ == 3);
        slot.index = other(slot.index, slots(draft, slot));
        return;
      }
      case 5:
        slot_of(*one, below(2) == 0).buffer = static_cast<Buffer>(below(3));
        return;
      case 6:
        if (one->step.kind != Step::Kind::kReduce) one->step.count += below(2) == 0 ? 1u : ~0u;
        return;
      case 7:
        if (one->step.kind == Step::Kind::kRecvReduce)
          one->step.kind = Step::Kind::kRecv;
        else if (one->step.kind == Step::Kind::kRecv)
          one->step.kind = Step::Kind::kRecvReduce, one->step.a = below(2) ? one->step.dst : in(0);
        return;
      case kOtherRoot:
        job_.ranks[rank_] = schedule_of(*algorithm_, static_cast<int>(rank_), hosts,
                                        static_cast<int>(below(ranks)));
        return;
      case 9: {
        auto& from = rounds[round];
        if (from.empty()) return;
        const Draft::Line moved = from.back();
        from.pop_back();
        const size_t to = round + (below(2) == 0 && round > 0 ? ~size_t{0} : 1);
        if (to >= rounds.size()) rounds.resize(to + 1);
        rounds[to].push_back(moved);
        return;
      }
      case 10: {
        auto& lines = rounds[round];
        if (lines.size() > 1) std::swap(lines[below(lines.size())], lines[below(lines.size())]);
        return;
      }
      case 11:
        std::swap(rounds[round], rounds[below(rounds.size())]);
        return;
      case 12: {
        auto& sources = one->sources;
        if (sources.empty()) return;
        const size_t at = below(sources.size());
        if (below(2) == 0)
          sources.erase(sources.begin() + static_cast<ptrdiff_t>(at));
        else
          sources[at] = sources[below(sources.size())];
        return;
      }
      case 13:
        if (round + 1 >= rounds.size()) return;
        rounds[round].insert(rounds[round].end(), rounds[round + 1].begin(),
                             rounds[round + 1].end());
        if (below(2) == 0)
          rounds.erase(rounds.begin() + static_cast<ptrdiff_t>(round) + 1);
        else
          rounds[round + 1].clear();
        return;
      case 14:
        rounds.insert(rounds.begin() + static_cast<ptrdiff_t>(round), std::vector<Draft::Line>());
        return;
      case 15:
        if (!draft.scratch.empty()) {
          Slot& like = draft.scratch[below(draft.scratch.size())];
          like.index = other(like.index, draft.chunks);
        }
        return;
      case kOtherRank:
        job_.ranks[rank_] = right_.ranks[below(ranks)];
        return;
      default:
        if (one->step.kind == Step::Kind::kSend)
          one->step.kind = Step::Kind::kRecv, one->step.dst = one->step.a;
        else if (one->step.kind == Step::Kind::kRecv)
          one->step.kind = Step::Kind::kSend, one->step.a = one->step.dst;
    }
  }

  std::mt19937_64 draw_;
  const Algorithm* algorithm_;
  Job right_, job_;
  size_t rank_, kind_;
};

std::string fault_of(const Job& job) {
  if (std::string fault = check(job); !fault.empty()) return fault;
  if (std::string fault = prove(job, Memory::kSeparate); !fault.empty()) return fault;
  return may_run_in_place(job.collective) ? prove(job, Memory::kInPlace) : "";
}

// A mutant that passes may be as right as the original: two steps of a round in another order, a
// peer that was drawn again. It must then be right in every order in which its steps are made.
std::string wrong_result(const Job& job, uint64_t seed) {
  for (uint64_t run = 0; run < 8; ++run) {
    if (std::string fault = run_in_any_order(job, Memory::kSeparate, seed + run); !fault.empty())
      return fault;
    if (!may_run_in_place(job.collective)) continue;
    if (std::string fault = run_in_any_order(job, Memory::kInPlace, seed + run); !fault.empty())
      return "in place: " + fault;
  }
  return "";
}

constexpr uint64_t kParts = 4;  // that run beside each other

class Mutants : public ::testing::TestWithParam<uint64_t> {};

TEST_P(Mutants, AreRefusedOrRight) {
  const uint64_t all = number_setting("HCCL_LIKE_MUTANTS", kMutants);
  const uint64_t first = number_setting("HCCL_LIKE_MUTANTS_FIRST", 0);
  uint64_t planted = 0, refused = 0, stricter = 0, failures = 0;
  uint64_t right_by_kind[kKindsOfMistakes] = {};
  for (uint64_t seed = first + all * GetParam() / kParts;
       seed < first + all * (GetParam() + 1) / kParts && failures < 3; ++seed) {
    const Mutant mutant(seed);
    if (!mutant.differs()) continue;
    ++planted;
    const std::string fault = fault_of(mutant.job());
    const std::string large = prove_large(large_job(mutant.job()), {.memory = 500}).fault;
    refused += !fault.empty();
    right_by_kind[mutant.kind()] += fault.empty();
    stricter += fault.empty() && !large.empty();
    if (!fault.empty() && large.empty())
      ++failures, ADD_FAILURE() << "prove_large misses: " << fault << '\n' << mutant.describe();
    if (!fault.empty()) {
      // What only the proof notices goes wrong in any order. A barrier has no values to go wrong.
      if (mutant.job().collective != Collective::kBarrier && check(mutant.job()).empty() &&
          wrong_result(mutant.job(), seed).empty())
        ++failures, ADD_FAILURE() << "refused, but right: " << fault << '\n' << mutant.describe();
      continue;
    }
    if (const std::string wrong = wrong_result(mutant.job(), seed); !wrong.empty())
      ++failures, ADD_FAILURE() << wrong << ", and the proof does not notice\n"
                                << mutant.describe() << "again: HCCL_LIKE_MUTANTS_FIRST=" << seed
                                << " HCCL_LIKE_MUTANTS=4 proof_test";
  }
  std::printf(
      "%llu mistakes: %llu refused, %llu as right as before, of which prove_large refuses "
      "%llu\n",
      static_cast<unsigned long long>(planted), static_cast<unsigned long long>(refused),
      static_cast<unsigned long long>(planted - refused),
      static_cast<unsigned long long>(stricter));
  for (size_t kind = 0; kind < kKindsOfMistakes; ++kind)
    if (right_by_kind[kind] > 0)
      std::printf("  right: %s, %llu\n", kKinds[kind],
                  static_cast<unsigned long long>(right_by_kind[kind]));
}

INSTANTIATE_TEST_SUITE_P(Part, Mutants, ::testing::Range(uint64_t{0}, kParts));

TEST(AnyOrder, RunsEveryAlgorithmRight) {
  for (int i = 0; i < kCollectives; ++i) {
    if (is_point_to_point(static_cast<Collective>(i))) continue;
    for (const Algorithm& algorithm : algorithms(static_cast<Collective>(i))) {
      for (const int size : {4, 7, 8}) {
        const Hosts hosts = algorithm.fits(4) ? Hosts(size) : Hosts::even(2, size / 2);
        if (!algorithm.fits(hosts)) continue;
        EXPECT_EQ(wrong_result(make_job(algorithm, hosts, 1), 1), "") << algorithm.name;
      }
    }
  }
}

}  // namespace
}  // namespace hccl_like
