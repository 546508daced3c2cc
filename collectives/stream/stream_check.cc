#include "collectives/stream/stream_check.h"

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <tuple>
#include <utility>

namespace hccl_like {

namespace {

using VectorClock =
    std::vector<uint64_t>;  // of each rank: how many of its steps are known to be over
constexpr uint64_t kReleased = std::numeric_limits<uint64_t>::max();

void merge(VectorClock& clock, const VectorClock& other) {
  for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

// Steps of all ranks in some order that the words allow. Each program runs `runs` times.
class Turns {
 public:
  explicit Turns(const std::vector<StreamProgram>& programs, size_t runs = 1)
      : programs_(programs),
        runs_(runs),
        taken_(programs.size(), 0),
        words_(programs.size(), std::vector<uint64_t>(2 * programs.size(), 0)) {}

  bool over(size_t rank) const { return taken_[rank] == runs_ * programs_[rank].steps.size(); }
  size_t taken(size_t rank) const { return taken_[rank]; }
  // Of a rank that is not over: the number of its run, and of the step in it.
  size_t run(size_t rank) const { return taken_[rank] / programs_[rank].steps.size(); }
  size_t next(size_t rank) const { return taken_[rank] % programs_[rank].steps.size(); }
  const StreamStep& step(size_t rank) const { return programs_[rank].steps[next(rank)]; }
  bool blocked(size_t rank) const {
    const StreamStep& one = step(rank);
    return one.kind == StreamStep::Kind::kWait &&
           words_[rank][word(static_cast<size_t>(one.rank), one.second)] < one.value;
  }
  void take(size_t rank) {
    const StreamStep& one = step(rank);
    if (one.kind == StreamStep::Kind::kSignal)
      for (auto& copies : words_)
        copies[word(rank, one.second)] = one.value;  // after a release, too
    if (one.kind == StreamStep::Kind::kReset)
      for (size_t other = 0; other < words_.size(); ++other)
        words_[rank][word(other, one.second)] = 0;
    ++taken_[rank];
  }
  void release() {
    for (auto& copies : words_) std::ranges::fill(copies, kReleased);
  }

  std::string stuck() const {
    for (size_t rank = 0; rank < programs_.size(); ++rank)
      if (!over(rank))
        return "rank " + std::to_string(rank) + " waits for ever in step " +
               std::to_string(next(rank)) + ", until the word of rank " +
               std::to_string(step(rank).rank) + " is " + std::to_string(step(rank).value);
    return "";
  }

 private:
  size_t word(size_t rank, bool second) const { return rank + (second ? programs_.size() : 0); }

  const std::vector<StreamProgram>& programs_;
  const size_t runs_;
  std::vector<size_t> taken_;
  std::vector<std::vector<uint64_t>> words_;  // by reader, of each rank; then the second words
};

// Owner and number of a chunk's memory.
using Cell = std::pair<size_t, size_t>;

class Cells {
 public:
  Cells(const Job& job, Memory memory)
      : chunks_(job.ranks[0].chunks()), in_place_(memory == Memory::kInPlace) {}
  size_t number(Slot slot) const { return cell_of(slot, chunks_, in_place_); }
  Cell of(size_t rank, Slot slot, uint32_t i) const {
    return {rank, number({slot.buffer, slot.index + i})};
  }

 private:
  size_t chunks_;
  bool in_place_;
};

class OrderCheck {
 public:
  OrderCheck(const Job& job, const std::vector<StreamProgram>& programs, Memory memory)
      : programs_(programs),
        cells_(job, memory),
        turns_(programs),
        clocks_(programs.size(), VectorClock(programs.size(), 0)),
        signals_(programs.size()) {
    for (size_t rank = 0; rank < programs.size(); ++rank) clocks_[rank][rank] = kStart;
  }

  std::string run() {
    for (size_t rank = 0; rank < programs_.size(); ++rank)
      for (const StreamStep& step : programs_[rank].steps)
        if (step.beside && !is_apart(rank, step))
          return "rank " + std::to_string(rank) + ", step " +
                 std::to_string(&step - programs_[rank].steps.data()) +
                 ": another step concerns what it copies";
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < programs_.size(); ++rank)
        while (!turns_.over(rank) && !turns_.blocked(rank)) {
          if (std::string fault = take(rank); !fault.empty()) return fault;
          moved = true;
        }
    }
    if (std::string fault = turns_.stuck(); !fault.empty()) return fault;
    for (const auto& [cell, history] : histories_)
      for (size_t reader = 0; reader < programs_.size(); ++reader)
        if (reader != cell.first && history.reads[reader] > clocks_[cell.first][reader])
          return "rank " + std::to_string(cell.first) + " ends while rank " +
                 std::to_string(reader) + " reads its memory in step " +
                 std::to_string(history.reads[reader] - kStart - 1);
    for (size_t rank = 0; rank < programs_.size(); ++rank)
      for (const Signal& signal : signals_[rank])
        if (!signal.awaited)
          return "nobody waits until the word of rank " + std::to_string(rank) + " is " +
                 std::to_string(signal.value);
    return "";
  }

 private:
  // The work before the call, which writes all memory of its rank. Steps are numbered from there.
  static constexpr uint64_t kStart = 1;

  struct Signal {
    uint64_t value = 0;
    VectorClock clock;
    bool awaited = false;
  };
  struct History {
    size_t writer = 0;            // at first the owner
    uint64_t write = kStart;      // number of the last writer's step
    std::vector<uint64_t> reads;  // of each rank: number of its last reading step
  };

  // Whether a step only copies within its rank, and no other step of any rank reads or writes its
  // target or writes its source.
  bool is_apart(size_t rank, const StreamStep& step) const {
    const auto from = programs_[rank].sources(step);
    if (from.size() != 1 || from[0].rank != static_cast<int32_t>(rank)) return false;
    const auto is_one_of = [&](Cell cell, Slot first) {
      for (uint32_t i = 0; i < step.count; ++i)
        if (cells_.of(rank, first, i) == cell) return true;
      return false;
    };
    for (size_t other = 0; other < programs_.size(); ++other)
      for (const StreamStep& one : programs_[other].steps) {
        if (&one == &step) continue;
        for (uint32_t i = 0; i < one.count; ++i) {
          const Cell written = cells_.of(other, one.dst, i);
          if (one.sources > 0 && (is_one_of(written, step.dst) || is_one_of(written, from[0].slot)))
            return false;
          for (const RankSlot& source : programs_[other].sources(one))
            if (is_one_of(cells_.of(static_cast<size_t>(source.rank), source.slot, i), step.dst))
              return false;
        }
      }
    return true;
  }

  std::string take(size_t rank) {
    const StreamStep& step = turns_.step(rank);
    VectorClock& clock = clocks_[rank];
    clock[rank] = kStart + 1 + turns_.next(rank);
    switch (step.kind) {
      case StreamStep::Kind::kReset:  // replayable programs are run, not checked
        break;
      case StreamStep::Kind::kSignal:
        signals_[rank].push_back({step.value, clock});
        break;
      case StreamStep::Kind::kWait: {
        auto& all = signals_[static_cast<size_t>(step.rank)];
        const auto first = std::ranges::find_if(
            all, [&](const Signal& signal) { return signal.value >= step.value; });
        first->awaited = true;
        merge(clock, first->clock);
        break;
      }
      case StreamStep::Kind::kReduce:
        for (uint32_t i = 0; i < step.count; ++i) {
          for (const RankSlot& source : programs_[rank].sources(step))
            if (!read(rank, cells_.of(static_cast<size_t>(source.rank), source.slot, i)))
              return races(rank, "reads", source.rank);
          if (!write(rank, cells_.of(rank, step.dst, i))) return races(rank, "writes", rank);
        }
        break;
    }
    turns_.take(rank);
    return "";
  }

  template <class Owner>
  std::string races(size_t rank, const char* does, Owner owner) const {
    return "rank " + std::to_string(rank) + ", step " + std::to_string(turns_.next(rank)) + ": " +
           does + " memory of rank " + std::to_string(owner) + " that another rank " +
           (std::string_view(does) == "reads" ? "writes" : "reads") + " at the same time";
  }

  History& history(Cell cell) {
    History& found = histories_[cell];
    if (found.reads.empty()) {
      found.writer = cell.first;
      found.reads.resize(programs_.size());
    }
    return found;
  }
  bool read(size_t rank, Cell cell) {
    History& found = history(cell);
    found.reads[rank] = clocks_[rank][rank];
    return found.write <= clocks_[rank][found.writer];
  }
  bool write(size_t rank, Cell cell) {
    History& found = history(cell);
    bool ordered = found.write <= clocks_[rank][found.writer];
    for (size_t other = 0; other < programs_.size(); ++other)
      ordered = ordered && found.reads[other] <= clocks_[rank][other];
    found.writer = rank;
    found.write = clocks_[rank][rank];
    return ordered;
  }

  const std::vector<StreamProgram>& programs_;
  const Cells cells_;
  Turns turns_;
  std::vector<VectorClock> clocks_;
  std::vector<std::vector<Signal>> signals_;
  std::map<Cell, History> histories_;
};

}  // namespace

std::string check_streams(const Job& job, const std::vector<StreamProgram>& programs,
                          Memory memory) {
  return OrderCheck(job, programs, memory).run();
}

std::string run_streams(const Job& job, const std::vector<StreamProgram>& programs, Memory memory,
                        uint64_t seed, int dies, size_t runs) {
  std::mt19937_64 random(seed);
  const Cells cells(job, memory);
  const size_t size = programs.size();
  const uint32_t chunks = job.ranks[0].chunks();
  // By run and rank. A run begins with new numbers in all memory of the rank.
  std::vector<std::vector<std::vector<uint64_t>>> begin(runs,
                                                        std::vector<std::vector<uint64_t>>(size));
  std::vector<decltype(run_on_numbers(job, memory, {}))> outputs;
  for (auto& of_run : begin) {
    for (size_t rank = 0; rank < size; ++rank) {
      of_run[rank].resize(2 * size_t{chunks} + programs[rank].scratch_like.size());
      for (uint64_t& value : of_run[rank]) value = random();
    }
    outputs.push_back(run_on_numbers(job, memory, [&](int rank, Slot slot) {
      return of_run[static_cast<size_t>(rank)][cells.number(slot)];
    }));
  }

  auto values = begin.front();
  Turns turns(programs, runs);
  const size_t last =
      dies < 0 ? 0 : random() % (runs * programs[static_cast<size_t>(dies)].steps.size() + 1);
  std::vector<size_t> able;
  const auto stopped = [&](size_t rank) {
    return static_cast<int>(rank) == dies && turns.taken(rank) >= last;
  };
  const auto wrong = [&](size_t rank, size_t run) -> std::string {
    for (uint32_t chunk = 0; chunk < chunks && dies < 0; ++chunk)
      if (may_write_output(job, static_cast<int>(rank), chunk) &&
          values[rank][cells.number(out(chunk))] != outputs[run][rank][chunk])
        return "rank " + std::to_string(rank) + ": out[" + std::to_string(chunk) +
               "] is not what the schedule makes";
    return "";
  };
  for (bool dead = false;;) {
    if (dies >= 0 && stopped(static_cast<size_t>(dies)) && (!std::exchange(dead, true) || runs > 1))
      turns.release();
    able.clear();
    for (size_t rank = 0; rank < size; ++rank)
      if (!stopped(rank) && !turns.over(rank) && !turns.blocked(rank)) able.push_back(rank);
    if (able.empty()) break;
    const size_t rank = able[random() % able.size()];
    const StreamStep& step = turns.step(rank);
    const size_t run = turns.run(rank);
    if (turns.next(rank) == 0) values[rank] = begin[run][rank];
    if (step.kind == StreamStep::Kind::kReduce)
      for (uint32_t i = 0; i < step.count; ++i) {
        uint64_t sum = 0;
        for (const RankSlot& source : programs[rank].sources(step)) {
          const auto [owner, number] = cells.of(static_cast<size_t>(source.rank), source.slot, i);
          sum += values[owner][number];
        }
        values[rank][cells.of(rank, step.dst, i).second] = sum;
      }
    turns.take(rank);
    if (turns.next(rank) == 0)
      if (std::string fault = wrong(rank, run); !fault.empty()) return fault;
  }
  for (size_t rank = 0; rank < size; ++rank)
    if (static_cast<int>(rank) != dies && !turns.over(rank)) return turns.stuck();
  return "";
}

}  // namespace hccl_like
