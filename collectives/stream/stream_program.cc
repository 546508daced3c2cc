#include "collectives/stream/stream_program.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace hccl_like {

namespace {

// A step of a schedule, as the rank that writes sees it.
struct Action {
  size_t round = 0;
  Slot dst{};
  uint32_t count = 1;
  std::vector<RankSlot> sources;
  std::vector<uint64_t> ready;  // of each source: the value of its rank's word when it may be read
};

Slot after(Slot slot, uint32_t i) { return {slot.buffer, slot.index + i}; }

}  // namespace

class StreamCompiler {
 public:
  StreamCompiler(const Job& job, bool in_place)
      : job_(job), in_place_(in_place), matching_(match(job)), actions_(job.ranks.size()) {
    for (const Schedule& schedule : job.ranks) rounds_ = std::max(rounds_, schedule.rounds());
    programs_.resize(job.ranks.size());
    for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
      const auto scratch = job.ranks[rank].scratch_like();
      programs_[rank].rank = static_cast<int32_t>(rank);
      programs_[rank].scratch_like.assign(scratch.begin(), scratch.end());
      programs_[rank].values = rounds_ + 1;
      collect(rank);
    }
  }

  std::vector<StreamProgram> run() && {
    for (size_t rank = 0; rank < actions_.size(); ++rank) read_in_place_of_scratch(rank);
    for (size_t rank = 0; rank < actions_.size(); ++rank) note_readers(rank);
    emit();
    for (StreamProgram& program : programs_) {
      drop_signals(program);
      drop_scratch(program);
    }
    return std::move(programs_);
  }

 private:
  static constexpr size_t kNever = std::numeric_limits<size_t>::max();
  size_t cell(Slot slot) const { return cell_of(slot, job_.ranks[0].chunks(), in_place_); }

  void collect(size_t rank) {
    const Schedule& schedule = job_.ranks[rank];
    const auto me = static_cast<int32_t>(rank);
    for (size_t round = 0; round < schedule.rounds(); ++round) {
      for (const Step& step : schedule.steps(round)) {
        Action action{.round = round, .dst = step.dst, .count = step.count, .sources{}, .ready{}};
        action.sources.reserve(std::max(step.sources, 2u));
        const auto read = [&](int32_t from, Slot slot) {
          action.sources.push_back({from, slot});
          action.ready.push_back(from == me ? 0 : round + 1);
        };
        switch (step.kind) {
          case Step::Kind::kSend:
            continue;
          case Step::Kind::kCopy:
            if (cell(step.a) == cell(step.dst)) continue;
            read(me, step.a);
            break;
          case Step::Kind::kReduce:
            for (const Slot& source : schedule.sources(step)) read(me, source);
            break;
          case Step::Kind::kRecvReduce:
            read(me, step.a);
            [[fallthrough]];
          case Step::Kind::kRecv:
            read(step.peer, sent(rank, step).a);
            break;
        }
        actions_[rank].push_back(std::move(action));
      }
    }
  }

  // The send that meets this receive.
  const Step& sent(size_t rank, const Step& receive) const {
    const auto number = static_cast<uint32_t>(&receive - job_.ranks[rank].steps().data());
    const auto peer = static_cast<size_t>(receive.peer);
    const uint32_t other = matching_.partner[matching_.first[rank] + number];
    return job_.ranks[peer].steps()[other - matching_.first[peer]];
  }

  // The first round after `round` in which the rank writes the cell.
  size_t next_write(size_t rank, size_t wanted, size_t round) const {
    for (const Action& action : actions_[rank]) {
      if (action.round <= round) continue;
      for (uint32_t i = 0; i < action.count; ++i)
        if (cell(after(action.dst, i)) == wanted) return action.round;
    }
    return kNever;
  }

  // A chunk that is received into scratch memory only to be reduced is read where it is, if it
  // stays there so long.
  void read_in_place_of_scratch(size_t rank) {
    std::vector<Action>& actions = actions_[rank];
    for (Action& sum : actions) {
      if (sum.sources.size() < 2) continue;
      for (size_t i = 0; i < sum.sources.size(); ++i) {
        const RankSlot source = sum.sources[i];
        if (source.slot.buffer != Buffer::kScratch || uses(rank, source.slot) != 2) continue;
        const auto received = std::ranges::find_if(actions, [&](const Action& action) {
          return action.dst == source.slot && action.count == 1 && action.sources.size() == 1;
        });
        if (received == actions.end() || received->round >= sum.round) continue;
        const RankSlot from = received->sources.front();
        if (next_write(static_cast<size_t>(from.rank), cell(from.slot), received->round) <=
            sum.round)
          continue;
        sum.sources[i] = from;
        sum.ready[i] = received->ready.front();
        received->sources.clear();
      }
    }
    std::erase_if(actions, [](const Action& action) { return action.sources.empty(); });
  }

  // How often the rank's steps name the slot, sends included.
  size_t uses(size_t rank, Slot slot) const {
    const auto has = [&](Slot first, uint32_t count) {
      return first.buffer == slot.buffer && slot.index >= first.index &&
             slot.index - first.index < count;
    };
    size_t found = 0;
    for (const Step& step : job_.ranks[rank].steps()) {
      found += step.kind == Step::Kind::kSend && has(step.a, step.count);
    }
    for (const Action& action : actions_[rank]) {
      found += has(action.dst, action.count);
      for (const RankSlot& source : action.sources)
        found += source.rank == static_cast<int32_t>(rank) && has(source.slot, action.count);
    }
    return found;
  }

  struct Reader {
    size_t rank;
    size_t round;  // in which it reads
    size_t since;  // the round of the owner before which the content was there
  };

  void note_readers(size_t rank) {
    for (const Action& action : actions_[rank])
      for (size_t i = 0; i < action.sources.size(); ++i) {
        const RankSlot& source = action.sources[i];
        if (source.rank == static_cast<int32_t>(rank)) continue;
        for (uint32_t part = 0; part < action.count; ++part)
          readers_[{source.rank, cell(after(source.slot, part))}].push_back(
              {rank, action.round, static_cast<size_t>(action.ready[i] - 1)});
      }
  }

  // Round by round, because a rank waits for earlier rounds of others only.
  void emit() {
    const size_t size = programs_.size();
    known_.assign(size, std::vector<uint64_t>(size, 0));
    known_with_.assign(size, std::vector<std::vector<uint64_t>>(rounds_ + 2));
    for (size_t rank = 0; rank < size; ++rank) signal(rank, 1);
    std::vector<size_t> next(size, 0);
    for (size_t round = 0; round < rounds_; ++round)
      for (size_t rank = 0; rank < size; ++rank) {
        const std::vector<Action>& actions = actions_[rank];
        for (; next[rank] < actions.size() && actions[next[rank]].round == round; ++next[rank])
          emit(rank, actions[next[rank]]);
        signal(rank, round + 2);
      }
    std::vector<std::vector<uint64_t>> last(size, std::vector<uint64_t>(size, 0));
    for (const auto& [owned, all] : readers_)
      for (const Reader& reader : all) {
        uint64_t& value = last[static_cast<size_t>(owned.first)][reader.rank];
        value = std::max(value, uint64_t{reader.round + 2});
      }
    for (size_t rank = 0; rank < size; ++rank)
      for (size_t reader = 0; reader < size; ++reader) await(rank, reader, last[rank][reader]);
  }

  void emit(size_t rank, const Action& action) {
    for (size_t i = 0; i < action.sources.size(); ++i)
      await(rank, static_cast<size_t>(action.sources[i].rank), action.ready[i]);
    for (uint32_t i = 0; i < action.count; ++i)
      for (const Reader& reader : readers(rank, after(action.dst, i)))
        if (reader.since <= action.round) await(rank, reader.rank, reader.round + 2);
    add(programs_[rank], rank, action);
  }

  // Not if it follows from an earlier wait: who signals has waited, too.
  void await(size_t rank, size_t other, uint64_t value) {
    std::vector<uint64_t>& known = known_[rank];
    if (other == rank || known[other] >= value) return;
    const std::vector<uint64_t>& with = known_with_[other][value];
    for (size_t i = 0; i < known.size(); ++i) known[i] = std::max(known[i], with[i]);
    programs_[rank].steps.push_back(
        {.kind = StreamStep::Kind::kWait, .rank = static_cast<int32_t>(other), .value = value});
  }

  void signal(size_t rank, uint64_t value) {
    known_[rank][rank] = value;
    known_with_[rank][value] = known_[rank];
    programs_[rank].steps.push_back(
        {.kind = StreamStep::Kind::kSignal, .rank = static_cast<int32_t>(rank), .value = value});
  }

  const std::vector<Reader>& readers(size_t rank, Slot slot) const {
    static const std::vector<Reader> none;
    const auto found = readers_.find({static_cast<int32_t>(rank), cell(slot)});
    return found == readers_.end() ? none : found->second;
  }

  // Whether the action copies within the rank what no other action of any rank reads or writes.
  bool is_beside(size_t rank, const Action& action) const {
    if (action.sources.size() != 1 || action.sources[0].rank != static_cast<int32_t>(rank))
      return false;
    const auto overlap = [&](Slot a, uint32_t a_count, Slot b, uint32_t b_count) {
      const size_t from = cell(a), to = cell(b);
      return from < to + b_count && to < from + a_count;
    };
    for (uint32_t i = 0; i < action.count; ++i)
      if (!readers(rank, after(action.dst, i)).empty()) return false;
    return std::ranges::none_of(actions_[rank], [&](const Action& other) {
      if (&other == &action) return false;
      if (overlap(other.dst, other.count, action.dst, action.count) ||
          overlap(other.dst, other.count, action.sources[0].slot, action.count))
        return true;
      return std::ranges::any_of(other.sources, [&](const RankSlot& source) {
        return source.rank == static_cast<int32_t>(rank) &&
               overlap(source.slot, other.count, action.dst, action.count);
      });
    });
  }

  void add(StreamProgram& program, size_t rank, const Action& action) const {
    program.steps.push_back({.kind = StreamStep::Kind::kReduce,
                             .dst = action.dst,
                             .count = action.count,
                             .first_source = static_cast<uint32_t>(program.all_sources.size()),
                             .sources = static_cast<uint32_t>(action.sources.size()),
                             .beside = is_beside(rank, action)});
    program.all_sources.insert(program.all_sources.end(), action.sources.begin(),
                               action.sources.end());
  }

  // Keeps the signals that end a wait of another rank.
  void drop_signals(StreamProgram& program) {
    const auto rank = static_cast<size_t>(&program - programs_.data());
    std::vector<bool> awaited(rounds_ + 2);
    for (const StreamProgram& other : programs_)
      for (const StreamStep& step : other.steps)
        if (step.kind == StreamStep::Kind::kWait && step.rank == static_cast<int32_t>(rank))
          awaited[step.value] = true;
    std::erase_if(program.steps, [&](const StreamStep& step) {
      return step.kind == StreamStep::Kind::kSignal && !awaited[step.value];
    });
  }

  // Renumbers the scratch slots that are used; other ranks may read them, too.
  void drop_scratch(StreamProgram& program) {
    const auto is_own_scratch = [&](const RankSlot& one) {
      return one.rank == program.rank && one.slot.buffer == Buffer::kScratch;
    };
    std::vector<bool> used(program.scratch_like.size());
    const auto each = [&](auto&& see) {
      for (StreamProgram& other : programs_)
        for (StreamStep& step : other.steps) {
          if (step.kind != StreamStep::Kind::kReduce) continue;
          if (&other == &program && step.dst.buffer == Buffer::kScratch) see(step.dst, step.count);
          for (uint32_t i = 0; i < step.sources; ++i)
            if (RankSlot& source = other.all_sources[step.first_source + i]; is_own_scratch(source))
              see(source.slot, step.count);
        }
    };
    each([&](const Slot& slot, uint32_t count) {
      std::fill_n(used.begin() + slot.index, count, true);
    });
    std::vector<uint32_t> number(used.size());
    std::vector<Slot> kept;
    for (size_t i = 0; i < used.size(); ++i) {
      number[i] = static_cast<uint32_t>(kept.size());
      if (used[i]) kept.push_back(program.scratch_like[i]);
    }
    each([&](Slot& slot, uint32_t) { slot.index = number[slot.index]; });
    program.scratch_like = std::move(kept);
  }

  const Job& job_;
  const bool in_place_;
  const Matching matching_;
  size_t rounds_ = 0;
  std::vector<std::vector<Action>> actions_;  // by rank, in the order of rounds
  std::map<std::pair<int32_t, size_t>, std::vector<Reader>> readers_;  // on other ranks, by owner
  // Values of all ranks' words that a rank knows of, now and with each value of its own.
  std::vector<std::vector<uint64_t>> known_;
  std::vector<std::vector<std::vector<uint64_t>>> known_with_;
  std::vector<StreamProgram> programs_;
};

std::vector<StreamProgram> compile_streams(const Job& job, bool in_place) {
  return StreamCompiler(job, in_place).run();
}

std::string StreamProgram::to_string() const {
  std::string lines;
  for (const StreamStep& step : steps) {
    if (step.second) lines += "second ";
    switch (step.kind) {
      case StreamStep::Kind::kReset:
        lines += "reset";
        break;
      case StreamStep::Kind::kWait:
        lines += "wait " + std::to_string(step.rank) + " >= " + std::to_string(step.value);
        break;
      case StreamStep::Kind::kSignal:
        lines += "signal " + std::to_string(step.value);
        break;
      case StreamStep::Kind::kReduce: {
        lines += hccl_like::to_string(step.dst, step.count);
        const char* sign = " = ";
        for (const RankSlot& source : sources(step)) {
          lines += sign + std::to_string(source.rank) + ':' +
                   hccl_like::to_string(source.slot, step.count);
          sign = " + ";
        }
        if (step.beside) lines += " (beside)";
        break;
      }
    }
    lines += '\n';
  }
  return lines;
}

StreamProgram replayable(StreamProgram program, int32_t ranks) {
  const auto meet = [&](uint64_t value, bool second) {
    program.steps.push_back({.kind = StreamStep::Kind::kSignal,
                             .rank = program.rank,
                             .value = value,
                             .second = second});
    for (int32_t rank = 0; rank < ranks; ++rank)
      if (rank != program.rank)
        program.steps.push_back(
            {.kind = StreamStep::Kind::kWait, .rank = rank, .value = value, .second = second});
    program.steps.push_back({.kind = StreamStep::Kind::kReset, .second = second});
  };
  meet(++program.values, false);
  meet(1, true);
  return program;
}

}  // namespace hccl_like
