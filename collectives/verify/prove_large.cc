#include "collectives/verify/prove_large.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collectives/verify/check.h"
#include "collectives/verify/contributions.h"
#include "collectives/verify/large_round.h"
#include "collectives/verify/prove.h"
#include "collectives/verify/round_clock.h"
#include "collectives/verify/simulate.h"

namespace hccl_like {

namespace {

using Value = uint32_t;

// Steps and sources in the rounds of all ranks.
struct Need {
  uint64_t steps = 0;
  uint64_t sources = 0;
};

class LargeProver {
 public:
  LargeProver(const LargeJob& job, const LargeOptions& options)
      : job_(job),
        options_(options),
        size_(static_cast<uint32_t>(job.size)),
        sums_(size_),
        cells_(size_),
        next_(size_) {
    facts_.collective = job.collective;
    facts_.root = job.root;
    facts_.equal_chunks = job.equal_chunks;
    facts_.ranks.assign(size_, Schedule(0));
    for (int rank = 0; rank < job.size; ++rank) place_.push_back(job.place(rank));
  }

  LargeProof run() {
    proof_.fault = find_fault();
    if (clock_) proof_.makespan_ps = clock_->makespan_ps();
    return std::move(proof_);
  }

 private:
  std::string find_fault() {
    if (std::string fault = check_ranks(); !fault.empty()) return fault;
    if (options_.topology) clock_.emplace(*options_.topology, options_.chunk_bytes);
    for (size_t first = 0; first < needs_.size();) {
      size_t end = first;
      uint64_t bytes = 0;
      for (; end < needs_.size() && (end == first || bytes + bytes_of(end) <= options_.memory);
           ++end)
        bytes += bytes_of(end);
      // One round that is too large: a part of its receivers after the other.
      const auto parts =
          static_cast<uint32_t>(std::min<uint64_t>(bytes / options_.memory + 1, size_));
      if (parts > 1) clock_.reset();
      for (uint32_t part = 0; part < parts; ++part) {
        const auto cut = [&](uint64_t i) { return static_cast<uint32_t>(size_ * i / parts); };
        collect(first, end, cut(part), cut(part + 1));
        for (size_t round = first; round < end; ++round)
          if (std::string fault = run_round(round, rounds_[round - first]); !fault.empty())
            return fault;
      }
      first = end;
    }
    return compare();
  }

  uint64_t bytes_of(size_t round) const {
    return needs_[round].steps * sizeof(PackedStep) +
           (needs_[round].sources + size_) * sizeof(uint32_t);
  }

  // Looks at each rank alone, and finds out how much memory each round takes.
  std::string check_ranks() {
    ++proof_.passes;
    for (uint32_t rank = 0; rank < size_; ++rank) {
      const Schedule& schedule = facts_.ranks[rank] = job_.make(static_cast<int>(rank));
      if (rank == 0) chunks_ = schedule.chunks();
      if (schedule.chunks() != chunks_)
        return "rank " + std::to_string(rank) + " cuts the payload into other chunks than rank 0";
      if (std::string fault = check_rank(facts_, static_cast<int>(rank)); !fault.empty())
        return fault;
      if (std::string fault = input_is_lost(rank); !fault.empty()) return fault;
      if (needs_.size() < schedule.rounds()) needs_.resize(schedule.rounds());
      for (size_t round = 0; round < schedule.rounds(); ++round) {
        needs_[round].steps += schedule.steps(round).size();
        proof_.steps += schedule.steps(round).size();
        for (const Step& step : schedule.steps(round)) needs_[round].sources += step.sources;
      }
      cells_[rank].assign(chunks_ + schedule.scratch_like().size(), Contributions::kWrong);
      facts_.ranks[rank] = Schedule(chunks_);
    }
    return "";
  }

  // In place, out(c) must not be written before the last read of in(c).
  std::string input_is_lost(uint32_t rank) {
    if (!may_run_in_place(facts_.collective)) return "";
    const Schedule& schedule = facts_.ranks[rank];
    written_.assign(chunks_, false);
    for (size_t round = 0; round < schedule.rounds(); ++round) {
      const auto lost = [&](Slot slot, uint32_t count) {
        for (uint32_t i = 0; i < count; ++i)
          if (slot.buffer == Buffer::kInput && written_[slot.index + i]) return true;
        return false;
      };
      for (const Step& step : schedule.steps(round)) {
        bool reads_lost = step.kind != Step::Kind::kRecv && step.kind != Step::Kind::kReduce &&
                          lost(step.a, step.count);
        for (const Slot& source : schedule.sources(step))
          reads_lost = reads_lost || lost(source, 1);
        if (reads_lost)
          return "rank " + std::to_string(rank) + ", round " + std::to_string(round) + ": " +
                 schedule.to_string(step) +
                 " reads input that is written over if the output is the same memory";
      }
      for (const Step& step : schedule.steps(round)) {
        if (step.kind == Step::Kind::kSend || step.dst.buffer != Buffer::kOutput) continue;
        // The engine skips a copy of memory onto itself.
        if (step.kind == Step::Kind::kCopy && step.a == Slot{Buffer::kInput, step.dst.index})
          continue;
        for (uint32_t i = 0; i < step.count; ++i) written_[step.dst.index + i] = true;
      }
    }
    return "";
  }

  // Fills rounds_ with the rounds [first, end): the steps of the ranks [from, to), and what others
  // send to them.
  void collect(size_t first, size_t end, uint32_t from, uint32_t to) {
    ++proof_.passes;
    from_ = from, to_ = to;
    rounds_.resize(end - first);
    for (size_t i = 0; i < rounds_.size(); ++i) {
      LargeRound& round = rounds_[i];
      round.steps.clear(), round.sources.clear(), round.begin.clear();
      const Need& need = needs_[first + i];
      const uint64_t share = size_ / (to - from);
      round.steps.reserve(need.steps / share), round.sources.reserve(need.sources / share);
      round.begin.reserve(size_ + 1);
    }
    // Several ranks at a time, whose steps lie side by side in a round.
    constexpr uint32_t kTogether = 16;
    for (uint32_t begin = 0; begin < size_; begin += kTogether) {
      const uint32_t until = std::min(begin + kTogether, size_);
      for (uint32_t rank = begin; rank < until; ++rank)
        facts_.ranks[rank] = job_.make(static_cast<int>(rank));
      for (size_t i = 0; i < rounds_.size(); ++i)
        for (uint32_t rank = begin; rank < until; ++rank) {
          rounds_[i].begin.push_back(static_cast<uint32_t>(rounds_[i].steps.size()));
          const Schedule& schedule = facts_.ranks[rank];
          if (first + i >= schedule.rounds()) continue;
          for (const Step& step : schedule.steps(first + i)) pack(rounds_[i], rank, step);
        }
      for (uint32_t rank = begin; rank < until; ++rank) facts_.ranks[rank] = Schedule(chunks_);
    }
    for (LargeRound& round : rounds_)
      round.begin.push_back(static_cast<uint32_t>(round.steps.size()));
  }

  bool in_part(uint32_t rank) const { return rank >= from_ && rank < to_; }
  uint32_t cell(Slot slot) const { return static_cast<uint32_t>(cell_of(slot, chunks_, false)); }

  void pack(LargeRound& round, uint32_t rank, const Step& step) {
    const bool sends = step.kind == Step::Kind::kSend;
    if (!in_part(sends ? static_cast<uint32_t>(step.peer) : rank)) return;
    PackedStep packed{.peer = static_cast<uint32_t>(step.peer),
                      .kind = static_cast<uint32_t>(step.kind),
                      .count = step.count,
                      .a = cell(step.a),
                      .dst = cell(step.dst),
                      .sizes = 0};
    if (step.kind == Step::Kind::kReduce) {
      packed.count = step.sources;
      packed.a = static_cast<uint32_t>(round.sources.size());
      for (const Slot& source : facts_.ranks[rank].sources(step))
        round.sources.push_back(cell(source));
    } else if (step.peer >= 0) {
      packed.sizes = sizes_of(rank, sends ? step.a : step.dst, step.count);
    }
    round.steps.push_back(packed);
  }

  // Lists of consecutive sizes are numbered by their first; all others are kept.
  uint32_t sizes_of(uint32_t rank, Slot slot, uint32_t count) {
    if (facts_.equal_chunks) return 0;
    const auto size_at = [&](uint32_t i) {
      const auto [x, y] =
          size_of_chunk(facts_, static_cast<int>(rank), Slot{slot.buffer, slot.index + i});
      return facts_.collective == Collective::kAllToAll ? x * size_ + y : x;
    };
    const uint32_t first = size_at(0);
    uint32_t i = 1;
    while (i < count && size_at(i) == first + i) ++i;
    if (i == count) return first;
    std::vector<uint32_t> list;
    for (i = 0; i < count; ++i) list.push_back(size_at(i));
    constexpr uint32_t kKept = uint32_t{1} << 31;
    return size_lists_.try_emplace(std::move(list), kKept + size_lists_.size()).first->second;
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

  const LargeJob& job_;
  const LargeOptions& options_;
  const uint32_t size_;
  uint32_t chunks_ = 0;
  Job facts_;  // has the schedule of the one rank that is looked at
  Contributions sums_;
  std::vector<uint32_t> place_;
  std::vector<std::vector<Value>> cells_;  // by rank: outputs and scratch slots
  std::vector<Need> needs_;                // by round
  std::vector<LargeRound> rounds_;
  uint32_t from_ = 0, to_ = 0;  // the ranks that receive
  std::map<std::vector<uint32_t>, uint32_t> size_lists_;
  std::vector<Arrival> arrivals_;
  std::vector<uint32_t> arrivals_begin_, filled_;  // by receiver
  std::vector<uint32_t> next_;                     // by sender
  std::vector<bool> written_;
  std::optional<RoundClock> clock_;
  LargeProof proof_;
};

}  // namespace

LargeJob large_job(const Algorithm& algorithm, const Hosts& hosts, int root) {
  LargeJob job{.collective = algorithm.collective,
               .root = root,
               .size = hosts.size(),
               .equal_chunks = algorithm.equal_chunks};
  job.make = [&algorithm, hosts, root](int rank) {
    return schedule_of(algorithm, rank, hosts, root);
  };
  // The ranks of a host follow each other.
  std::vector<uint32_t> first{0};
  for (int host = 0; host < hosts.count(); ++host)
    first.push_back(first.back() + static_cast<uint32_t>(hosts.on(host)));
  job.place = [hosts, first = std::move(first)](int rank) {
    return first[static_cast<size_t>(hosts.host(rank))] + static_cast<uint32_t>(hosts.place(rank));
  };
  return job;
}

LargeJob large_job(const Job& job) {
  return {.collective = job.collective,
          .root = job.root,
          .size = job.size(),
          .equal_chunks = job.equal_chunks,
          .make = [&job](int rank) { return job.ranks[static_cast<size_t>(rank)]; },
          .place = [](int rank) { return static_cast<uint32_t>(rank); }};
}

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
