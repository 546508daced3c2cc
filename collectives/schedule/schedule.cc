#include "collectives/schedule/schedule.h"

#include <array>
#include <utility>

namespace hccl_like {

Step send(int peer, Slot what, uint32_t count) {
  return {.kind = Step::Kind::kSend, .peer = peer, .count = count, .a = what};
}

Step recv(int peer, Slot into, uint32_t count) {
  return {.kind = Step::Kind::kRecv, .peer = peer, .count = count, .dst = into};
}

Step recv_reduce(int peer, Slot mine, Slot dst, uint32_t count) {
  return {.kind = Step::Kind::kRecvReduce, .peer = peer, .count = count, .a = mine, .dst = dst};
}

Step copy(Slot from, Slot to, uint32_t count) {
  return {.kind = Step::Kind::kCopy, .count = count, .a = from, .dst = to};
}

void Schedule::add_reduce(Slot dst, std::span<const Slot> sources) {
  if (sources.size() == 1) return add(copy(sources[0], dst));
  Step step{.kind = Step::Kind::kReduce, .dst = dst};
  step.first_source = static_cast<uint32_t>(sources_.size());
  step.sources = static_cast<uint32_t>(sources.size());
  sources_.insert(sources_.end(), sources.begin(), sources.end());
  add(step);
}

Slot Schedule::add_scratch(Slot like, size_t count) {
  const Slot first = scratch(scratch_.size());
  scratch_.insert(scratch_.end(), count, like);
  return first;
}

std::span<const Slot> Schedule::sources(const Step& step) const {
  return std::span(sources_).subspan(step.first_source, step.sources);
}

Schedule sums_at_once(const Schedule& schedule, int rank) {
  Schedule result(schedule.chunks());
  for (const Slot& like : schedule.scratch_like()) result.add_scratch(like);
  for (size_t round = 0; round < schedule.rounds(); ++round) {
    std::vector<std::pair<Slot, std::array<Slot, 2>>> sums;
    result.begin_round();
    for (const Step& step : schedule.steps(round)) {
      if (step.kind == Step::Kind::kReduce) {
        result.add_reduce(step.dst, schedule.sources(step));
      } else if (step.kind != Step::Kind::kRecvReduce) {
        result.add(step);
      } else {
        const size_t first = sums.size();
        for (uint32_t i = 0; i < step.count; ++i) {
          const Slot mine{step.a.buffer, step.a.index + i},
              dst{step.dst.buffer, step.dst.index + i};
          const Slot theirs = result.add_scratch(mine);
          sums.push_back({dst, rank == 0 ? std::array{mine, theirs} : std::array{theirs, mine}});
        }
        result.add(recv(step.peer, sums[first].second[rank == 0 ? 1 : 0], step.count));
      }
    }
    result.begin_round();
    for (const auto& [dst, sources] : sums) result.add_reduce(dst, sources);
  }
  return result;
}

std::string to_string(Slot slot, uint32_t count) {
  static constexpr const char* kNames[] = {"in", "out", "scratch"};
  std::string result = kNames[static_cast<size_t>(slot.buffer)];
  result += '[' + std::to_string(slot.index);
  if (count > 1) result += ".." + std::to_string(slot.index + count - 1);
  return result + ']';
}

std::string Schedule::to_string(const Step& step) const {
  const std::string a = hccl_like::to_string(step.a, step.count);
  const std::string dst = hccl_like::to_string(step.dst, step.count);
  const std::string peer = std::to_string(step.peer);
  switch (step.kind) {
    case Step::Kind::kSend:
      return "send " + a + "->" + peer;
    case Step::Kind::kRecv:
      return "recv " + dst + "<-" + peer;
    case Step::Kind::kRecvReduce:
      return "recv_reduce " + a + "+<-" + peer + " to " + dst;
    case Step::Kind::kCopy:
      return "copy " + a + " to " + dst;
    case Step::Kind::kReduce:
      break;
  }
  std::string result = "reduce ";
  for (const char* separator = ""; const Slot& source : sources(step)) {
    result += separator + hccl_like::to_string(source);
    separator = "+";
  }
  return result + " to " + dst;
}

std::string Schedule::to_string() const {
  std::string result;
  for (size_t round = 0; round < rounds(); ++round) {
    result += std::to_string(round) + ':';
    if (steps(round).empty()) result += " idle";
    for (const char* separator = " "; const Step& step : steps(round)) {
      result += separator + to_string(step);
      separator = "  ";
    }
    result += '\n';
  }
  return result;
}

}  // namespace hccl_like
