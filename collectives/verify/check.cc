#include "collectives/verify/check.h"

#include <algorithm>
#include <utility>

namespace hccl_like {

namespace {

constexpr bool sends(const Step& step) { return step.kind == Step::Kind::kSend; }
constexpr bool receives(const Step& step) {
  return step.kind == Step::Kind::kRecv || step.kind == Step::Kind::kRecvReduce;
}
bool same_sizes(const Job& job, int a_rank, Slot a, int b_rank, Slot b, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i, ++a.index, ++b.index) {
    if (size_of_chunk(job, a_rank, a) != size_of_chunk(job, b_rank, b)) return false;
  }
  return true;
}

bool sizes_fit(const Job& job, int rank, const Step& step) {
  if (step.kind == Step::Kind::kCopy || step.kind == Step::Kind::kRecvReduce) {
    return same_sizes(job, rank, step.a, rank, step.dst, step.count);
  }
  if (step.kind != Step::Kind::kReduce) return true;
  const auto sources = job.ranks[static_cast<size_t>(rank)].sources(step);
  return std::ranges::all_of(sources, [&](const Slot& source) {
    return same_sizes(job, rank, source, rank, step.dst, 1);
  });
}

// The step that writes a cell. `seen_in` counts looks at rounds, so that old entries need no
// clearing.
struct Writer {
  uint32_t seen_in = 0;
  uint32_t step = 0;    // index in the round
  uint32_t offset = 0;  // index among the step's `count` chunks
};

class RankCheck {
 public:
  RankCheck(const Job& job, int rank)
      : job_(job),
        rank_(rank),
        schedule_(job.ranks[static_cast<size_t>(rank)]),
        writers_(2 * size_t{schedule_.chunks()} + schedule_.scratch_like().size()) {}

  std::string run() {
    for (const Slot& like : schedule_.scratch_like()) {
      if (like.buffer == Buffer::kScratch || like.index >= schedule_.chunks()) {
        return "rank " + std::to_string(rank_) +
               ": a scratch slot is like a chunk that does not exist";
      }
    }
    for (round_ = 0; round_ < schedule_.rounds(); ++round_) {
      for (const Step& step : schedule_.steps(round_)) {
        if (const char* what = fault_of(step)) return sentence(step, what);
      }
      if (std::string fault = hazard_of_round(); !fault.empty()) return fault;
    }
    for (const Step& step : schedule_.steps())
      if (!sizes_fit(job_, rank_, step))
        return "rank " + std::to_string(rank_) + ": " + schedule_.to_string(step) +
               " mixes chunks of different sizes";
    return "";
  }

 private:
  std::string sentence(const Step& step, const std::string& what) const {
    return "rank " + std::to_string(rank_) + ", round " + std::to_string(round_) + ": " +
           schedule_.to_string(step) + ' ' + what;
  }

  bool exists(Slot slot, uint32_t count) const {
    const size_t slots =
        slot.buffer == Buffer::kScratch ? schedule_.scratch_like().size() : schedule_.chunks();
    return size_t{slot.index} + count <= slots;
  }

  // Null if there is none.
  const char* fault_of(const Step& step) const {
    if (sends(step) || receives(step)) {
      if (step.peer < 0 || step.peer >= job_.size()) return "names a rank that does not exist";
      if (step.peer == rank_) return "names its own rank";
    }
    if (step.kind == Step::Kind::kReduce) {
      if (step.count != 1) return "reduces more than one chunk";
      if (step.sources == 0) return "has no sources";
    }
    constexpr const char* kNoOutput = "uses output that this rank does not have";
    if (!sends(step)) {
      if (!exists(step.dst, step.count)) return "writes a chunk that does not exist";
      if (step.dst.buffer == Buffer::kInput) return "writes the input";
      if (!may_use(step.dst, step.count)) return kNoOutput;
    }
    const char* fault = nullptr;
    find_read(step, [&](Slot slot, uint32_t count) {
      if (!exists(slot, count))
        fault = "reads a chunk that does not exist";
      else if (!may_use(slot, count))
        fault =
            slot.buffer == Buffer::kInput ? "reads input that this rank does not have" : kNoOutput;
      return fault != nullptr;
    });
    return fault;
  }

  // Calls `wanted` with the chunks that the step reads, until it is true.
  template <class Wanted>
  void find_read(const Step& step, Wanted wanted) const {
    if (step.kind == Step::Kind::kRecv) return;
    if (step.kind != Step::Kind::kReduce) {
      wanted(step.a, step.count);
      return;
    }
    for (const Slot& source : schedule_.sources(step))
      if (wanted(source, 1)) return;
  }

  bool may_use(Slot slot, uint32_t count) const {
    for (uint32_t i = slot.index; i < slot.index + count; ++i) {
      if (slot.buffer == Buffer::kInput && !may_read_input(job_, rank_, i)) return false;
      if (slot.buffer == Buffer::kOutput && !may_write_output(job_, rank_, i)) return false;
    }
    return true;
  }

  uint32_t cell(Slot slot, bool in_place) const {
    return static_cast<uint32_t>(cell_of(slot, schedule_.chunks(), in_place));
  }

  // In place, a round has every hazard that it has in separate memory, but those of copies that are
  // skipped: one look is enough for most rounds.
  std::string hazard_of_round() {
    std::string in_place;
    if (may_run_in_place(job_.collective)) {
      in_place = hazard(/*in_place=*/true);
      if (in_place.empty() && !skipped_) return "";
    }
    std::string separate = hazard(/*in_place=*/false);
    return separate.empty() ? in_place : separate;
  }

  std::string hazard(bool in_place) {
    const auto steps = schedule_.steps(round_);
    // The engine skips a copy of memory onto itself.
    const auto skipped = [&](const Step& step) {
      return step.kind == Step::Kind::kCopy && cell(step.a, in_place) == cell(step.dst, in_place);
    };
    skipped_ = false;
    ++rounds_seen_;
    for (uint32_t number = 0; number < steps.size(); ++number) {
      const Step& step = steps[number];
      if (sends(step)) continue;
      if (skipped(step)) {
        skipped_ = true;
        continue;
      }
      Writer* const writers = &writers_[cell(step.dst, in_place)];
      for (uint32_t i = 0; i < step.count; ++i) {
        if (writers[i].seen_in == rounds_seen_)
          return conflict(writers[i], "writes what is also written by: ", step, in_place);
        writers[i] = {rounds_seen_, number, i};
      }
    }
    for (uint32_t number = 0; number < steps.size(); ++number) {
      const Step& step = steps[number];
      if (skipped(step)) continue;
      const Writer* conflicting = nullptr;
      find_read(step, [&](Slot slot, uint32_t count) {
        const Writer* const writers = &writers_[cell(slot, in_place)];
        for (uint32_t i = 0; i < count; ++i)
          // One step may read and write the same chunk, as in dst = dst + incoming.
          if (writers[i].seen_in == rounds_seen_ &&
              (writers[i].step != number || writers[i].offset != i))
            conflicting = &writers[i];
        return conflicting != nullptr;
      });
      if (conflicting) return conflict(*conflicting, "writes what is read by: ", step, in_place);
    }
    return "";
  }

  std::string conflict(const Writer& writer, const char* does, const Step& other,
                       bool in_place) const {
    return sentence(schedule_.steps(round_)[writer.step],
                    does + schedule_.to_string(other) +
                        (in_place ? " (input and output are the same memory)" : ""));
  }

  const Job& job_;
  const int rank_;
  const Schedule& schedule_;
  size_t round_ = 0;
  bool skipped_ = false;         // hazard() has passed over a copy
  std::vector<Writer> writers_;  // by cell
  uint32_t rounds_seen_ = 0;     // a round is looked at once or twice
};

}  // namespace

std::string check_rank(const Job& job, int rank) { return RankCheck(job, rank).run(); }

std::string check(const Job& job) {
  for (int rank = 0; rank < job.size(); ++rank) {
    if (std::string fault = check_rank(job, rank); !fault.empty()) return fault;
    if (job.ranks[static_cast<size_t>(rank)].chunks() != job.ranks[0].chunks()) {
      return "rank " + std::to_string(rank) + " cuts the payload into other chunks than rank 0";
    }
  }
  const Matching matching = match(job);
  if (!matching.fault.empty()) return matching.fault;

  for (int rank = 0; rank < job.size(); ++rank) {
    const Schedule& schedule = job.ranks[static_cast<size_t>(rank)];
    for (uint32_t number = 0; number < schedule.steps().size(); ++number) {
      const Step& step = schedule.steps()[number];
      auto who = [&] { return "rank " + std::to_string(rank) + ": " + schedule.to_string(step); };
      if (!sends(step)) continue;
      const auto peer = static_cast<size_t>(step.peer);
      const uint32_t other = matching.partner[matching.first[static_cast<size_t>(rank)] + number];
      const Step& meets = job.ranks[peer].steps()[other - matching.first[peer]];
      if (step.count != meets.count ||
          !same_sizes(job, rank, step.a, step.peer, meets.dst, step.count)) {
        return who() + " meets " + job.ranks[peer].to_string(meets) + ", which has another size";
      }
    }
  }
  return "";
}

}  // namespace hccl_like
