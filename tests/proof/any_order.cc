#include "tests/proof/any_order.h"

#include <map>
#include <random>
#include <tuple>
#include <vector>

namespace hccl_like {

namespace {

class Run {
 public:
  Run(const Job& job, Memory memory, uint64_t seed)
      : job_(job), in_place_(memory == Memory::kInPlace), draw_(seed), ranks_(job.ranks.size()) {
    const size_t chunks = job.ranks[0].chunks();
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      auto& cells = ranks_[rank].cells;
      cells.resize(2 * chunks + job.ranks[rank].scratch_like().size());
      for (uint64_t& cell : cells) cell = draw_();
      for (size_t c = 0; c < chunks; ++c) ranks_[rank].inputs.push_back(at(rank, in(c)));
      ranks_[rank].heard_now.resize(ranks_.size()), ranks_[rank].heard.resize(ranks_.size());
      ranks_[rank].heard_now[rank] = true;
      begin_round(rank, 0);
    }
  }

  std::string run() {
    std::vector<size_t> going;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) going.push_back(rank);
    size_t in_vain = 0;
    while (!going.empty()) {
      const size_t i = draw_() % going.size();
      if (advance(going[i]))
        in_vain = 0;
      else if (++in_vain > 20 * going.size() && nobody_can(going))
        return "no rank can go on";
      if (ranks_[going[i]].round < job_.ranks[going[i]].rounds()) continue;
      going[i] = going.back();
      going.pop_back();
    }
    if (!messages_.empty()) return "a message is left over";
    if (job_.collective != Collective::kBarrier) return wrong_output();
    for (const Rank& rank : ranks_)
      for (const bool heard : rank.heard)
        if (!heard) return "a rank leaves that has not heard of all others";
    return "";
  }

 private:
  struct Rank {
    std::vector<uint64_t> cells, inputs;
    size_t round = 0;
    std::vector<size_t> left;     // steps of the round
    std::vector<size_t> message;  // by step: its number between the two ranks
    std::vector<bool> heard;      // of which ranks it knows that they have entered
    std::vector<bool> heard_now;  // in this round
  };
  struct Message {
    std::vector<uint64_t> values;
    std::vector<bool> heard;
  };

  uint64_t& at(size_t rank, Slot slot, size_t i = 0) {
    slot.index += static_cast<uint32_t>(i);
    return ranks_[rank].cells[cell_of(slot, job_.ranks[0].chunks(), in_place_)];
  }

  void begin_round(size_t rank, size_t round) {
    Rank& state = ranks_[rank];
    for (; round < job_.ranks[rank].rounds() && job_.ranks[rank].steps(round).empty();) ++round;
    state.round = round;
    state.left.clear(), state.message.clear();
    for (size_t other = 0; other < ranks_.size(); ++other)
      if (state.heard_now[other]) state.heard[other] = true;
    if (round >= job_.ranks[rank].rounds()) return;
    std::map<std::pair<int, bool>, size_t> numbers;
    for (const Step& step : job_.ranks[rank].steps(round)) {
      state.left.push_back(state.left.size());
      state.message.push_back(numbers[{step.peer, step.kind == Step::Kind::kSend}]++);
    }
  }

  bool can(size_t rank, size_t number) const {
    const Step& step = job_.ranks[rank].steps(ranks_[rank].round)[number];
    return (step.kind != Step::Kind::kRecv && step.kind != Step::Kind::kRecvReduce) ||
           messages_.contains({ranks_[rank].round, step.peer, rank, ranks_[rank].message[number]});
  }

  bool nobody_can(const std::vector<size_t>& going) const {
    for (const size_t rank : going)
      for (const size_t number : ranks_[rank].left)
        if (can(rank, number)) return false;
    return true;
  }

  // Makes a step of the rank's round, if the one that is drawn can be made.
  bool advance(size_t rank) {
    Rank& state = ranks_[rank];
    if (state.left.empty()) return false;
    const size_t i = draw_() % state.left.size(), number = state.left[i];
    if (!can(rank, number)) return false;
    make(rank, job_.ranks[rank].steps(state.round)[number], state.message[number]);
    state.left[i] = state.left.back();
    state.left.pop_back();
    if (state.left.empty()) begin_round(rank, state.round + 1);
    return true;
  }

  void make(size_t rank, const Step& step, size_t number) {
    const size_t round = ranks_[rank].round;
    switch (step.kind) {
      case Step::Kind::kSend: {
        Message& message = messages_[{round, rank, step.peer, number}];
        for (size_t i = 0; i < step.count; ++i) message.values.push_back(at(rank, step.a, i));
        message.heard = ranks_[rank].heard;
        break;
      }
      case Step::Kind::kRecv:
      case Step::Kind::kRecvReduce: {
        const auto found = messages_.find({round, step.peer, rank, number});
        const Message message = std::move(found->second);
        messages_.erase(found);
        for (size_t other = 0; other < ranks_.size(); ++other)
          if (message.heard[other]) ranks_[rank].heard_now[other] = true;
        for (size_t i = 0; i < step.count; ++i)
          at(rank, step.dst, i) =
              message.values[i] + (step.kind == Step::Kind::kRecv ? 0 : at(rank, step.a, i));
        break;
      }
      case Step::Kind::kCopy:
        for (size_t i = 0; i < step.count; ++i) at(rank, step.dst, i) = at(rank, step.a, i);
        break;
      case Step::Kind::kReduce: {
        uint64_t sum = 0;
        for (const Slot& source : job_.ranks[rank].sources(step)) sum += at(rank, source);
        at(rank, step.dst) = sum;
        break;
      }
    }
  }

  uint64_t promised(size_t rank, size_t chunk) const {
    const auto root = static_cast<size_t>(job_.root);
    uint64_t sum = 0;
    switch (job_.collective) {
      case Collective::kAllGather:
      case Collective::kGather:
        return ranks_[chunk].inputs[chunk];
      case Collective::kAllToAll:
        return ranks_[chunk].inputs[rank];
      case Collective::kBroadcast:
      case Collective::kScatter:
        return ranks_[root].inputs[chunk];
      default:
        for (const Rank& each : ranks_) sum += each.inputs[chunk];
        return sum;
    }
  }

  std::string wrong_output() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      for (uint32_t c = 0; c < job_.ranks[0].chunks(); ++c)
        if (may_write_output(job_, static_cast<int>(rank), c) &&
            at(rank, out(c)) != promised(rank, c))
          return "out[" + std::to_string(c) + "] of rank " + std::to_string(rank) + " is wrong";
    return "";
  }

  const Job& job_;
  const bool in_place_;
  std::mt19937_64 draw_;
  std::vector<Rank> ranks_;
  std::map<std::tuple<size_t, size_t, size_t, size_t>, Message> messages_;
};

}  // namespace

std::string run_in_any_order(const Job& job, Memory memory, uint64_t seed) {
  return Run(job, memory, seed).run();
}

}  // namespace hccl_like
