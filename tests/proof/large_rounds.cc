#include "tests/proof/large_rounds.h"

#include <algorithm>
#include <utility>

#include "collectives/verify/check.h"

namespace hccl_like {

namespace {

// Schedules that are made at once: their steps lie side by side in a round.
constexpr uint32_t kTogether = 16;

}  // namespace

LargeRounds::LargeRounds(const LargeJob& job, size_t memory)
    : job_(job),
      memory_(memory),
      size_(static_cast<uint32_t>(job.size)),
      facts_{.collective = job.collective, .root = job.root, .equal_chunks = job.equal_chunks},
      scratch_(size_),
      to_(size_) {
  facts_.ranks.assign(size_, Schedule(0));
}

std::string LargeRounds::begin() {
  ++passes_;
  bool all = true;
  for (uint32_t begin = 0; begin < size_; begin += kTogether) {
    const uint32_t until = make_ranks(begin);
    for (uint32_t rank = begin; rank < until; ++rank)
      if (std::string fault = look_at(rank); !fault.empty()) return fault;
    if (all) rounds_.resize(needs_.size(), {.begin = std::vector<uint32_t>(begin)});
    pack_ranks(begin, until);
    // The first ranks say what all will need: no memory is reserved that would not be used.
    const uint64_t times = begin == 0 ? size_ / until + 1 : 1;
    uint64_t bytes = 0;
    for (size_t round = 0; round < rounds_.size(); ++round) {
      const Need need{needs_[round].steps * times, needs_[round].sources * times};
      bytes += bytes_of(need);
      if (bytes > memory_) {
        all = false;
        rounds_.resize(round);
      } else if (begin == 0) {
        reserve(rounds_[round], need);
      }
    }
  }
  end_rounds();
  return "";
}

bool LargeRounds::next() {
  if (++part_ >= parts_) {
    first_ += rounds_.size();
    size_t end = first_;
    uint64_t bytes = 0;
    for (; end < needs_.size() && (end == first_ || bytes + bytes_of(needs_[end]) <= memory_);
         ++end)
      bytes += bytes_of(needs_[end]);
    rounds_.resize(end - first_);
    part_ = 0;
    parts_ = static_cast<uint32_t>(std::min<uint64_t>(bytes / memory_ + 1, size_));
  }
  if (rounds_.empty()) return false;
  ++passes_;
  from_ = static_cast<uint32_t>(uint64_t{size_} * part_ / parts_);
  to_ = static_cast<uint32_t>(uint64_t{size_} * (part_ + 1) / parts_);
  for (size_t i = 0; i < rounds_.size(); ++i) {
    rounds_[i].steps.clear(), rounds_[i].sources.clear(), rounds_[i].begin.clear();
    const Need& all = needs_[first_ + i];
    reserve(rounds_[i], {all.steps / parts_, all.sources / parts_});
  }
  for (uint32_t begin = 0; begin < size_; begin += kTogether) pack_ranks(begin, make_ranks(begin));
  end_rounds();
  return true;
}

uint32_t LargeRounds::make_ranks(uint32_t begin) {
  const uint32_t until = std::min(begin + kTogether, size_);
  for (uint32_t rank = begin; rank < until; ++rank)
    facts_.ranks[rank] = job_.make(static_cast<int>(rank));
  return until;
}

std::string LargeRounds::look_at(uint32_t rank) {
  const Schedule& schedule = facts_.ranks[rank];
  if (rank == 0) chunks_ = schedule.chunks();
  if (schedule.chunks() != chunks_)
    return "rank " + std::to_string(rank) + " cuts the payload into other chunks than rank 0";
  if (std::string fault = check_rank(facts_, static_cast<int>(rank)); !fault.empty()) return fault;
  if (std::string fault = lost_input(rank); !fault.empty()) return fault;
  if (needs_.size() < schedule.rounds()) needs_.resize(schedule.rounds());
  for (size_t round = 0; round < schedule.rounds(); ++round) {
    needs_[round].steps += schedule.steps(round).size();
    for (const Step& step : schedule.steps(round)) needs_[round].sources += step.sources;
  }
  steps_ += schedule.steps().size();
  scratch_[rank] = static_cast<uint32_t>(schedule.scratch_like().size());
  return "";
}

// In place, out(c) must not be written before the last read of in(c).
std::string LargeRounds::lost_input(uint32_t rank) {
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
      for (const Slot& source : schedule.sources(step)) reads_lost = reads_lost || lost(source, 1);
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

void LargeRounds::reserve(LargeRound& round, const Need& need) const {
  round.steps.reserve(need.steps), round.sources.reserve(need.sources);
  round.begin.reserve(size_ + 1);
}

// Appends the ranks' steps, and forgets their schedules.
void LargeRounds::pack_ranks(uint32_t begin, uint32_t until) {
  for (size_t i = 0; i < rounds_.size(); ++i)
    for (uint32_t rank = begin; rank < until; ++rank) {
      rounds_[i].begin.push_back(static_cast<uint32_t>(rounds_[i].steps.size()));
      const Schedule& schedule = facts_.ranks[rank];
      if (first_ + i >= schedule.rounds()) continue;
      for (const Step& step : schedule.steps(first_ + i)) pack(rounds_[i], rank, step);
    }
  for (uint32_t rank = begin; rank < until; ++rank) facts_.ranks[rank] = Schedule(chunks_);
}

void LargeRounds::end_rounds() {
  for (LargeRound& round : rounds_)
    round.begin.push_back(static_cast<uint32_t>(round.steps.size()));
}

void LargeRounds::pack(LargeRound& round, uint32_t rank, const Step& step) {
  const bool sends = step.kind == Step::Kind::kSend;
  const uint32_t whose = sends ? static_cast<uint32_t>(step.peer) : rank;
  if (whose < from_ || whose >= to_) return;
  const auto cell = [&](Slot slot) {
    return static_cast<uint32_t>(cell_of(slot, chunks_, /*in_place=*/false));
  };
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
uint32_t LargeRounds::sizes_of(uint32_t rank, Slot slot, uint32_t count) {
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

}  // namespace hccl_like
