#include "tests/proof/prove_large.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collectives/verify/check.h"
#include "collectives/verify/prove.h"
#include "collectives/verify/simulate.h"
#include "tests/proof/contributions.h"
#include "tests/proof/large_rounds.h"
#include "tests/proof/round_clock.h"

namespace hccl_like {

namespace {

using Value = uint32_t;

class LargeProver {
 public:
  LargeProver(const LargeJob& job, const LargeOptions& options)
      : rounds_(job, options.memory),
        facts_(rounds_.facts()),
        size_(static_cast<uint32_t>(job.size)),
        sums_(size_),
        next_(size_) {
    for (int rank = 0; rank < job.size; ++rank) place_.push_back(job.place(rank));
    if (options.topology) clock_.emplace(*options.topology, options.chunk_bytes);
  }

  LargeProof run() {
    proof_.fault = find_fault();
    if (clock_) proof_.makespan_ps = clock_->makespan_ps();
    proof_.steps = rounds_.steps();
    proof_.passes = rounds_.passes();
    return std::move(proof_);
  }

 private:
  std::string find_fault() {
    if (std::string fault = rounds_.begin(); !fault.empty()) return fault;
    chunks_ = rounds_.chunks();
    for (uint32_t rank = 0; rank < size_; ++rank)
      cells_.emplace_back(chunks_ + rounds_.scratch(rank), Contributions::kWrong);
    do {
      if (!rounds_.of_all_ranks()) clock_.reset();
      from_ = rounds_.from(), to_ = rounds_.to();
      for (size_t i = 0; i < rounds_.rounds().size(); ++i)
        if (std::string fault = run_round(rounds_.first() + i, rounds_.rounds()[i]); !fault.empty())
          return fault;
    } while (rounds_.next());
    return compare();
  }

  std::string run_round(size_t number, LargeRound& round) {
    // By receiver, and for each in the order of its senders and of their steps.
    arrivals_begin_.assign(to_ - from_ + 1, 0);
    for (const PackedStep& step : round.steps)
      if (step.what() == Step::Kind::kSend) ++arrivals_begin_[step.peer - from_ + 1];
    for (size_t i = 1; i < arrivals_begin_.size(); ++i)
      arrivals_begin_[i] += arrivals_begin_[i - 1];
    arrivals_.resize(arrivals_begin_.back());
    proof_.messages += arrivals_.size();
    filled_.assign(arrivals_begin_.begin(), arrivals_begin_.end());
    for (uint32_t rank = 0; rank < size_; ++rank)
      for (uint32_t i = round.begin[rank]; i < round.begin[rank + 1]; ++i) {
        const PackedStep& step = round.steps[i];
        if (step.what() == Step::Kind::kSend)
          arrivals_[filled_[step.peer - from_]++] = {.step = i, .sender = rank, .adds = 0};
      }
    for (uint32_t rank = from_; rank < to_; ++rank)
      if (std::string fault = finish(number, round, rank); !fault.empty()) return fault;
    if (clock_) clock_->run(round, arrivals_, arrivals_begin_);
    return "";
  }

  // Receives, copies and reductions of one rank. No step of any rank reads in this round what they
  // write, so the order does not matter.
  std::string finish(size_t number, const LargeRound& round, uint32_t rank) {
    const std::span<Arrival> arrivals = std::span(arrivals_).subspan(
        arrivals_begin_[rank - from_],
        arrivals_begin_[rank - from_ + 1] - arrivals_begin_[rank - from_]);
    for (uint32_t i = 0; i < arrivals.size(); ++i)
      if (i == 0 || arrivals[i].sender != arrivals[i - 1].sender) next_[arrivals[i].sender] = i;
    uint32_t received = 0;
    for (uint32_t at = round.begin[rank]; at < round.begin[rank + 1]; ++at) {
      const PackedStep& step = round.steps[at];
      if (step.what() == Step::Kind::kSend) continue;
      if (step.what() == Step::Kind::kReduce) {
        Value sum = get(rank, round.sources[step.a]);
        for (uint32_t i = 1; i < step.count; ++i)
          sum = add(sum, get(rank, round.sources[step.a + i]));
        put(rank, step.dst, sum);
        proof_.chunks += step.count;
        continue;
      }
      proof_.chunks += step.count;
      if (step.what() == Step::Kind::kCopy) {
        for (uint32_t i = 0; i < step.count; ++i) put(rank, step.dst + i, get(rank, step.a + i));
        continue;
      }
      uint32_t& next = next_[step.peer];
      if (next >= arrivals.size() || arrivals[next].sender != step.peer)
        return lonely(number, rank, "receives a message", step.peer, "sends it");
      const PackedStep& sent = round.steps[arrivals[next].step];
      if (sent.count != step.count || sent.sizes != step.sizes)
        return lonely(number, rank, "receives a message", step.peer, "sends one of that size");
      for (uint32_t i = 0; i < step.count; ++i) {
        const Value value = get(step.peer, sent.a + i);
        put(rank, step.dst + i,
            step.what() == Step::Kind::kRecv ? value : add(get(rank, step.a + i), value));
      }
      arrivals[next].adds = step.what() == Step::Kind::kRecvReduce;
      ++next, ++received;
    }
    if (received == arrivals.size()) return "";
    for (uint32_t i = 0; i < arrivals.size(); ++i)
      if (i + 1 == arrivals.size() || arrivals[i + 1].sender != arrivals[i].sender)
        if (next_[arrivals[i].sender] <= i)
          return lonely(number, arrivals[i].sender, "sends a message", rank, "receives it");
    return "";
  }

  static std::string lonely(size_t round, uint32_t rank, const std::string& does, uint32_t peer,
                            const std::string& misses) {
    return "rank " + std::to_string(rank) + ", round " + std::to_string(round) + ": " + does +
           ", but rank " + std::to_string(peer) + " has no step in this round that " + misses;
  }

  Value get(uint32_t rank, uint32_t cell) const {
    return cell < chunks_ ? input(rank, cell) : cells_[rank][cell - chunks_];
  }
  void put(uint32_t rank, uint32_t cell, Value value) { cells_[rank][cell - chunks_] = value; }

  // Sums: the ranks whose chunk of this number is in it. Else: the input that it is a copy of.
  Value input(uint32_t rank, uint32_t chunk) const {
    return reduces(facts_.collective) ? sums_.one(place_[rank]) : 1 + rank * chunks_ + chunk;
  }
  Value add(Value a, Value b) {
    return reduces(facts_.collective) ? sums_.sum(a, b) : Contributions::kWrong;
  }

  Value expected(uint32_t rank, uint32_t chunk) const {
    if (reduces(facts_.collective)) return sums_.all();
    switch (facts_.collective) {
      case Collective::kAllGather:
      case Collective::kGather:
        return input(chunk, chunk);
      case Collective::kAllToAll:
        return input(chunk, rank);
      default:
        return input(static_cast<uint32_t>(facts_.root), chunk);
    }
  }

  std::string compare() const {
    for (uint32_t rank = 0; rank < size_; ++rank)
      for (uint32_t c = 0; c < chunks_; ++c)
        if (may_write_output(facts_, static_cast<int>(rank), c) &&
            get(rank, chunks_ + c) != expected(rank, c))
          return "rank " + std::to_string(rank) + " of " + std::to_string(size_) + ": out[" +
                 std::to_string(c) + "] does not hold what it should";
    return "";
  }

  LargeRounds rounds_;
  const Job& facts_;
  const uint32_t size_;
  uint32_t chunks_ = 0;
  uint32_t from_ = 0, to_ = 0;  // the ranks that receive
  Contributions sums_;
  std::vector<uint32_t> place_;
  std::vector<std::vector<Value>> cells_;  // by rank: outputs and scratch slots
  std::vector<Arrival> arrivals_;
  std::vector<uint32_t> arrivals_begin_, filled_;  // by receiver
  std::vector<uint32_t> next_;                     // by sender
  std::optional<RoundClock> clock_;
  LargeProof proof_;
};

}  // namespace

LargeProof prove_large(const LargeJob& job, const LargeOptions& options) {
  if (job.collective != Collective::kBarrier) return LargeProver(job, options).run();
  // Few messages, and what each rank has heard of is exact there.
  Job whole{.collective = job.collective, .equal_chunks = job.equal_chunks};
  LargeProof proof{.passes = 1};
  for (int rank = 0; rank < job.size; ++rank) {
    whole.ranks.push_back(job.make(rank));
    proof.steps += whole.ranks.back().steps().size();
    for (const Step& step : whole.ranks.back().steps())
      proof.messages += step.kind == Step::Kind::kSend;
  }
  proof.fault = check(whole);
  if (proof.fault.empty()) proof.fault = prove(whole, Memory::kSeparate);
  if (proof.fault.empty() && options.topology)
    proof.makespan_ps =
        simulate(whole, *options.topology, {.bytes = options.chunk_bytes * whole.ranks[0].chunks()})
            .makespan_ps;
  return proof;
}

}  // namespace hccl_like
